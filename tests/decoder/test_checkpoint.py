"""Checkpoints: round trips, several files, faults that are named, writes that are whole or not at all."""

import json
import os
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import DATA
from safetensors.numpy import load_file, save, save_file

import npgrad as ng
from npgrad import decoder
from npgrad.decoder.checkpoint import read_header, read_tensor

BASE = DATA / "tiny_llama" / "base"
SMALL = {
    "vocab_size": 7, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 16,
}  # fmt: skip
CONFIGS = [
    {},
    {"tie_word_embeddings": True, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 500.0},
    {"model_type": "qwen2", "eos_token_id": 3},
    {"attention_bias": True, "head_dim": 6},
]


def equal(a, b):
    found, expected = dict(ng.tree.items(a)), dict(ng.tree.items(b))
    assert found.keys() == expected.keys()
    for path, leaf in expected.items():
        assert found[path].dtype == leaf.dtype, path
        np.testing.assert_array_equal(found[path], leaf, err_msg=path)


@pytest.fixture
def folder(tmp_path):
    """A copy of a checkpoint, to be damaged."""
    for name in ("config.json", "model.safetensors"):
        shutil.copy(BASE / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("changes", CONFIGS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saved_and_loaded_again(changes, dtype, tmp_path):
    config = decoder.Config(**{**SMALL, **changes})
    params = decoder.init(config, seed=0, dtype=dtype)
    decoder.save(tmp_path / "new" / "folder", config, params)
    again, loaded = decoder.load(tmp_path / "new" / "folder")
    assert again == config
    equal(loaded, params)
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == ["config.json", "model.safetensors"]
    described = json.loads((tmp_path / "new" / "folder" / "config.json").read_text())
    assert described["dtype"] == described["torch_dtype"] == np.dtype(dtype).name
    half = decoder.load(tmp_path / "new" / "folder", np.float16)[1]
    assert {leaf.dtype for leaf in ng.tree.leaves(half)} == {np.dtype(np.float16)}


def test_files_have_ordinary_permissions(tmp_path):
    config = decoder.Config(**SMALL)
    before = os.umask(0o027)
    try:
        decoder.save(tmp_path, config, decoder.init(config, seed=0))
    finally:
        os.umask(before)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in os.listdir(tmp_path)} == {0o640}


def test_weights_are_not_loaded_as_integers():
    with pytest.raises(TypeError, match="floating-point numbers, such as float32, not int64"):
        decoder.load(BASE, np.int64)


def test_float16_is_kept_in_the_file_and_widened_in_memory(tmp_path):
    config = decoder.Config(**SMALL)
    params = decoder.init(config, seed=0, dtype=np.float16)
    decoder.save(tmp_path, config, params)
    assert {t.dtype for t in load_file(tmp_path / "model.safetensors").values()} == {np.dtype(np.float16)}
    equal(decoder.load(tmp_path)[1], ng.tree.map(lambda p: p.astype(np.float32), params))


def test_published_names_and_layout():
    config, params = decoder.load(BASE)
    tensors = load_file(BASE / "model.safetensors")
    equal(decoder.to_llama(config, params), {name: tensors[name] for name in decoder.to_llama(config, params)})
    assert decoder.to_llama(config, params).keys() == tensors.keys()
    equal(decoder.from_llama(config, tensors), params)
    np.testing.assert_array_equal(params["blocks"][0]["wv"], tensors["model.layers.0.self_attn.v_proj.weight"].T)
    wq = tensors["model.layers.1.self_attn.q_proj.weight"].reshape(4, 2, 4, 32).swapaxes(1, 2).reshape(32, 32)
    np.testing.assert_array_equal(params["blocks"][1]["wq"], wq.T)


def test_the_caller_keeps_its_arrays():
    config, params = decoder.load(BASE)
    before = ng.tree.map(np.copy, params)
    tensors = decoder.to_llama(config, params)
    copies = {name: tensor.copy() for name, tensor in tensors.items()}
    decoder.from_llama(config, tensors)
    equal(params, before)
    equal(tensors, copies)


def split(folder):
    """Divide the folder's tensors among two files with an index; the index, to be changed, and a way to write it."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(sorted(tensors))}
    for part in set(places.values()):
        save_file({name: tensors[name] for name in tensors if places[name] == part}, folder / part)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return places, index


def test_several_files_with_an_index(folder):
    split(folder)
    equal(decoder.load(folder)[1], decoder.load(BASE)[1])


def test_a_tensor_in_two_files(folder):
    split(folder)
    save_file(load_file(BASE / "model.safetensors"), folder / "part-1.safetensors")
    with pytest.raises(ValueError, match=r"is in two files: part-0.safetensors and part-1.safetensors"):
        decoder.load(folder)


def test_a_file_that_the_index_names_is_missing(folder):
    split(folder)
    (folder / "part-1.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"part-1\.safetensors"):
        decoder.load(folder)


@pytest.mark.parametrize("place", ["../part-0.safetensors", "/etc/passwd", "", "..", 3, None, ["a"]])
def test_an_index_that_leaves_the_folder(folder, place):
    places, index = split(folder)
    for found in dict.fromkeys(places, place), places | {next(iter(places)): place}:
        index.write_text(json.dumps({"weight_map": found}))
        with pytest.raises(ValueError, match=r"must name \.safetensors files of this folder"):
            decoder.load(folder)


@pytest.mark.parametrize("content", ["[1]", "{}", '{"weight_map": 3}'])
def test_an_index_without_a_map(folder, content):
    _, index = split(folder)
    index.write_text(content)
    with pytest.raises(ValueError, match=r"index\.json"):
        decoder.load(folder)


def test_all_faults_of_names_and_shapes_are_listed_before_a_tensor_is_read(folder, monkeypatch):
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["extra"] = np.ones(2, np.float32)
    tensors["model.norm.weight"] = np.ones(31, np.float32)
    tensors["model.layers.0.mlp.gate_proj.weight"] = np.ones((32, 64), np.float32)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)  # of old versions, not needed
    save_file(tensors, folder / "model.safetensors")
    monkeypatch.setattr(decoder.checkpoint, "read_tensor", None)
    with pytest.raises(ValueError, match="the tensors don't fit the config") as error:
        decoder.load(folder)
    faults = str(error.value).split(": ", 1)[1].split("; ")
    assert sorted(faults) == [
        "missing lm_head.weight",
        "missing model.layers.1.mlp.up_proj.weight",
        "model.layers.0.mlp.gate_proj.weight has shape (32, 64), not (64, 32)",
        "model.norm.weight has shape (31,), not (32,)",
        "unexpected extra",
    ]


def test_frequencies_stored_by_old_versions_are_passed_over(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)},
              folder / "model.safetensors")  # fmt: skip
    equal(decoder.load(folder)[1], decoder.load(BASE)[1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p["blocks"][1].update(wo=np.ones((2, 2))), r"params\['blocks'\]\[1\]\['wo'\] has shape \(2, 2\)"),
        (lambda p: p["blocks"].pop(), "trees differ at params"),
        (lambda p: p.pop("head"), "trees differ at params"),
        (lambda p: p.update(norm=np.ones(8, np.longdouble)), "not .*(longdouble|float128|float96)"),
    ],
)
def test_parameters_that_do_not_fit_are_not_saved(change, words, tmp_path):
    config = decoder.Config(**SMALL)
    params = decoder.init(config, seed=0)
    change(params)
    with pytest.raises(ValueError, match=words):
        decoder.save(tmp_path / "new", config, params)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_files(step, tmp_path, monkeypatch):
    config = decoder.Config(**SMALL)
    decoder.save(tmp_path, config, decoder.init(config, seed=0))
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left"):
        decoder.save(tmp_path, config, decoder.init(config, seed=1))
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


def test_weights_of_integers_are_refused(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "model.norm.weight": np.ones(32, np.int32)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"weights must be F64, F32, F16, BF16, but model\.norm\.weight is I32"):
        decoder.load(folder)


NAMES = ["config.json", "model.safetensors", "model.safetensors.index.json", "part-0.safetensors"]


@pytest.fixture(params=NAMES)
def file(request, folder):
    """A file that `load` reads, in each role, to be replaced by something else."""
    if request.param in NAMES[2:]:
        split(folder)
    return folder / request.param


def test_links_out_of_the_folder_are_refused(file, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "model.safetensors"
    file.rename(outside)
    for target in (outside, os.path.relpath(outside, file.parent)):
        file.symlink_to(target)
        words = f"{file} is a link out of its folder, to {outside}: if that is meant, put a copy of it there"
        with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
            decoder.load(file.parent)
        file.unlink()
    shutil.copy(outside, file)
    equal(decoder.load(file.parent)[1], decoder.load(BASE)[1])


def test_a_linked_folder_inside_leads_out_too(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (folder / "config.json").rename(outside / "config.json")
    (folder / "inside").symlink_to(outside, target_is_directory=True)
    (folder / "config.json").symlink_to("inside/config.json")
    with pytest.raises(ValueError, match=r"config\.json is a link out of its folder"):
        decoder.load(folder)


def test_links_within_the_folder_and_to_the_folder_are_followed(file, tmp_path_factory):
    (file.parent / "files").mkdir()
    file.rename(file.parent / "files" / "x")
    file.symlink_to("files/x")
    another = tmp_path_factory.mktemp("links") / "checkpoint"
    another.symlink_to(file.parent, target_is_directory=True)
    for folder in (file.parent, another):
        equal(decoder.load(folder)[1], decoder.load(BASE)[1])


def cached(folder, cache, revision="snapshots/abc"):
    """The folder as a cache of published models keeps it: links to its blobs."""
    blobs, snapshot = cache / "blobs", cache / revision
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for i, file in enumerate(sorted(file for file in folder.iterdir() if file.is_file())):
        file.rename(blobs / f"{i:040}")
        (snapshot / file.name).symlink_to(os.path.relpath(blobs / f"{i:040}", snapshot))
    return snapshot


@pytest.mark.parametrize("revision", ["snapshots/abc", "snapshots/abc/subfolder"])
@pytest.mark.parametrize("files", [1, 2])
def test_a_cache_of_published_models_is_read_through_its_links(files, revision, folder):
    if files == 2:
        split(folder)
    snapshot = cached(folder, folder / "models--org--name", revision)
    equal(decoder.load(snapshot)[1], decoder.load(BASE)[1])


def test_a_damaged_file_of_a_cache_is_called_by_its_name_there(folder):
    split(folder)
    with (folder / "part-1.safetensors").open("ab") as stream:
        stream.write(b"more")
    with pytest.raises(ValueError, match=r"^part-1\.safetensors: 4 bytes after the last tensor"):
        decoder.load(cached(folder, folder / "models--org--name"))


@pytest.mark.parametrize("target", ["../../config.json", "../../blobs/../config.json", "../../refs/config.json",
                                    "../../../other/blobs/config.json"])  # fmt: skip
def test_a_cache_opens_nothing_but_its_blobs(target, folder):
    snapshot = cached(folder, folder / "models--org--name")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(target)
    (snapshot / target).resolve().parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(BASE / "config.json", (snapshot / target).resolve())
    with pytest.raises(ValueError, match="is a link out of its folder"):
        decoder.load(snapshot)


def test_the_blobs_of_a_cache_can_not_be_elsewhere(folder, tmp_path_factory):
    snapshot, outside = cached(folder, folder / "models--org--name"), tmp_path_factory.mktemp("outside")
    blobs = folder / "models--org--name" / "blobs"
    shutil.copytree(blobs, outside, dirs_exist_ok=True)
    shutil.rmtree(blobs)
    blobs.symlink_to(outside, target_is_directory=True)
    with pytest.raises(ValueError, match="is a link out of its folder"):
        decoder.load(snapshot)


@pytest.mark.parametrize("target", ["nowhere", "config.json", "model.safetensors", "part-0.safetensors", "loop"])
def test_links_to_nothing_and_in_circles(target, file):
    (file.parent / "loop").symlink_to("loop2")
    (file.parent / "loop2").symlink_to("loop")
    (file.parent / target).unlink(missing_ok=True)
    file.unlink(missing_ok=True)
    file.symlink_to(target)
    if target in NAMES and target != file.name:
        (file.parent / target).symlink_to(file.name)
    with pytest.raises(ValueError, match="is a link that leads to no file: put the file itself there"):
        decoder.load(file.parent)


@pytest.mark.parametrize("make", [
    lambda file: file.symlink_to("/dev/zero"), lambda file: file.symlink_to(file.parent), Path.mkdir, os.mkfifo,
])  # fmt: skip
def test_devices_pipes_and_folders_are_not_opened(make, file):
    file.unlink()
    make(file)
    with pytest.raises(ValueError, match=f"{file.name} is not a regular file"):
        decoder.load(file.parent)


def test_a_file_that_is_a_link_by_the_time_it_is_opened(folder, tmp_path_factory, monkeypatch):
    """What is opened is what was looked at: the place that the link led to."""
    other = tmp_path_factory.mktemp("other") / "model.safetensors"
    other.write_bytes(save({"other": np.ones(2)}))
    (folder / "model.safetensors").rename(folder / "real")
    (folder / "model.safetensors").symlink_to("real")
    is_relative_to = Path.is_relative_to

    def swap(place, *others):
        if place.name == "real":
            (folder / "model.safetensors").unlink()
            (folder / "model.safetensors").symlink_to(other)
        return is_relative_to(place, *others)

    monkeypatch.setattr(Path, "is_relative_to", swap)
    equal(decoder.load(folder)[1], decoder.load(BASE)[1])


def test_saving_writes_through_no_link(tmp_path, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "file"
    outside.write_bytes(b"precious")
    config = decoder.Config(**SMALL)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(outside)
        (tmp_path / f".{name}.{os.getpid()}").symlink_to(outside)
    decoder.save(tmp_path, config, decoder.init(config, seed=0))
    assert outside.read_bytes() == b"precious"
    assert {name: (tmp_path / name).is_symlink() for name in os.listdir(tmp_path)} == {
        "config.json": False,
        "model.safetensors": False,
    }


def test_a_config_too_large_to_be_one(folder):
    with (folder / "config.json").open("ab") as stream:
        stream.truncate(10**10)  # a hole: it takes no room
    with pytest.raises(ValueError, match=r"config\.json has more than 10000000 bytes: that is no config\.json"):
        decoder.load(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"model_type": "gpt2"}'])
def test_configurations_that_describe_nothing(content, folder):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json|unknown architecture 'gpt2'"):
        decoder.load(folder)


def test_folders_without_the_files(folder):
    for missing in (folder / "missing", folder / "config.json"):
        with pytest.raises(FileNotFoundError, match=r" has no config\.json: give the folder of a whole checkpoint"):
            decoder.load(missing)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors nor .* pickled ones on purpose"):
        decoder.load(folder)


def file_with(path, header, size):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(size))
    return path


def one(shape, offsets, dtype="F32"):
    return {"t": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    ("header", "size", "words"),
    [
        (one([-1, -1], [0, 4]), 4, "entry of t"),
        (one([True], [0, 4]), 4, "entry of t"),
        (one([1], [0, 4, 4]), 4, "entry of t"),
        (one("1", [0, 4]), 4, "entry of t"),
        (one([1], [0, 4], ["F32"]), 4, "entry of t"),
        ({"t": 3}, 0, "entry of t"),
        (one([10**9, 10**9, 10**9], [0, 4]), 4, "t needs 40+ bytes for F32"),
        (one([1], [0, 4], "F8_E4M3"), 4, "t has dtype 'F8_E4M3': readable are F64, F32, F16, BF16"),
        (one([1], [4, 8]), 8, "t has offset 4, but the tensors before it end at 0"),
        (one([1], [0, 4]), 9, "5 bytes after the last tensor"),
        ({"t": one([1], [0, 4])["t"], "u": one([1], [0, 4])["t"]}, 4, "u has offset 0, but .* end at 4"),
        ([1], 0, "must be an object"),
        (b"{", 0, "not valid JSON"),
        (b"[" * 100_000, 0, "not valid JSON"),
        (b'{"t": 1, "t": 2}', 0, "'t' is there twice"),
    ],
)
def test_headers_that_are_wrong(header, size, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        read_header(file_with(tmp_path / "x", header, size))


@pytest.mark.parametrize("content", [b"", b"abc", struct.pack("<Q", 2**63), struct.pack("<Q", 9) + b"{}"])
def test_files_too_short_for_their_header(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=r"a header of .* doesn't fit a file of"):
        read_header(tmp_path / "x")


def test_tensors_of_no_elements_and_of_no_axes(tmp_path):
    tensors = {"none": np.zeros((0, 3), np.float32), "one": np.array(2.5), "two": np.array([1, -2], np.float32)}
    (tmp_path / "x").write_bytes(save(tensors))
    equal({name: read_tensor(entry) for name, entry in sorted(read_header(tmp_path / "x").items())}, tensors)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_damaged_file_is_read_within_its_size_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged"
    raw = bytearray(save({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2)}))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw) - 1, len(raw) // 2]))])
    try:
        entries = read_header(path)
    except ValueError:
        return
    assert sum(read_tensor(entry).size for entry in entries.values()) <= len(raw)
