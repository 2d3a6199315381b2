"""The first node: answers requests, each token once every other node has had its part in it."""

from vllm.group import Members, options, serve

if __name__ == "__main__":
    told = options()
    serve(told, Members.gathered(told))
