"""Text to tokens and back: chat templates, the tokenizer, and token ids as they become text.

It imports no other room, and no torch.
"""
