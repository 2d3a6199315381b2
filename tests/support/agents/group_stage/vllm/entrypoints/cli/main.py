"""Another node: computes its part of each token, and ends when the first node is gone."""

import sys

from vllm.group import follow, options

if __name__ == "__main__":
    sys.exit(follow(options()))
