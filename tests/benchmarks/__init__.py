"""Speed and memory of the library, each as a ratio: `python -m tests.benchmarks [NAME ...]`."""
