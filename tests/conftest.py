"""Options of the test run."""


def pytest_addoption(parser):
    parser.addoption("--programs", type=int, default=500, help="how many random programs tests/test_random_programs.py checks")
