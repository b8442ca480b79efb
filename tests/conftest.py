"""Options of the test run."""


def pytest_addoption(parser):
    parser.addoption("--programs", type=int, default=500, help="how many random programs to check")
