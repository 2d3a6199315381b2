"""Names of operations that a tenant's loss may use; none writes, or allocates by a number."""

KEYWORDS = frozenset(
    [
        "dim",
        "keepdim",
        "min",
        "max",
        "beta",
        "threshold",
        "rounding_mode",
        "nan",
        "posinf",
        "neginf",
        "other",
        "dtype",
        "delta",
    ]
)

ELEMENTWISE = [
    "abs",
    "add",
    "clamp",
    "clip",
    "div",
    "divide",
    "exp",
    "expm1",
    "eq",
    "ge",
    "gt",
    "isfinite",
    "isnan",
    "le",
    "log",
    "log1p",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "lt",
    "maximum",
    "minimum",
    "mul",
    "multiply",
    "nan_to_num",
    "ne",
    "neg",
    "negative",
    "pow",
    "reciprocal",
    "relu",
    "rsqrt",
    "sigmoid",
    "sign",
    "sqrt",
    "square",
    "sub",
    "subtract",
    "tanh",
    "true_divide",
    "where",
]
REDUCTIONS = [
    "amax",
    "amin",
    "cumsum",
    "log_softmax",
    "logsumexp",
    "max",
    "mean",
    "min",
    "prod",
    "softmax",
    "std",
    "sum",
    "var",
    "all",
    "any",
]
SHAPES = ["squeeze", "unsqueeze", "flatten"]
LIKE = ["zeros_like", "ones_like"]
CASTS = ["float", "bool", "long", "detach"]
OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "neg",
    "pow",
    "abs",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and_",
    "or_",
    "invert",
    "pos",
]
FUNCTIONAL = ["logsigmoid", "softplus", "softmax", "log_softmax"]
OF_TORCH = (*ELEMENTWISE, *REDUCTIONS, *SHAPES, *LIKE)
# Those that tensors have as methods too.
OF_TENSORS = (*ELEMENTWISE, *REDUCTIONS, *SHAPES)
FUNCTIONS = frozenset([
    *(f"operator.{name}" for name in OPERATORS),
    *(f"torch.{name}" for name in OF_TORCH),
    *(f"torch.nn.functional.{name}" for name in FUNCTIONAL),
    # As torch.fx names those that are not written in Python.
    "torch._C._nn.softplus", "torch._C._nn.log_sigmoid",
    "operator.getitem", "builtins.getattr", "getattr",
])  # fmt: skip
METHODS = frozenset([*OF_TENSORS, *CASTS, "size", "to"])
