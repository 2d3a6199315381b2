"""Expressions over claims: what they make, and that hostile ones end at once."""

from typing import Any

import pytest
from tests.support.costs import thread_seconds

from windlass.users.workloads.expressions import ExpressionRefused, check, evaluate

CLAIMS: dict[str, Any] = {
    "sub": "repo:acme/app:ref:refs/heads/main",
    "repository": "acme/app",
    "ref": "refs/heads/main",
    "run": 7,
    "protected": True,
    "groups": ["dev", "ops"],
    "kubernetes.io": {"namespace": "team-a", "serviceaccount": {"name": "trainer"}},
    "long": "x" * 15_000,
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("assertion.repository", "acme/app"),
        ('assertion.repository + ":" + assertion.ref', "acme/app:refs/heads/main"),
        ('assertion["kubernetes.io"].serviceaccount.name', "trainer"),
        ("assertion['kubernetes.io']['namespace']", "team-a"),
        ('assertion.sub.startsWith("repo:acme/")', True),
        ('"ops" in assertion.groups', True),
        ('assertion.ref in ["refs/heads/main", "refs/heads/release"]', True),
        ('has(assertion.environment) ? assertion.environment : "none"', "none"),
        ("assertion.run + 1", 8),
        ("string(assertion.run)", "7"),
        ("size(assertion.groups)", 2),
        ("!assertion.protected || assertion.run > 5 && assertion.run < 9", True),
        ("-assertion.run * 2", -14),
        ("1.5", 1.5),
        # What is not there, not of the type, or no attribute.
        ("assertion.absent", None),
        ("assertion.sub + 1", None),
        ("assertion.run / 0", None),
        ("assertion.groups", None),
        ("assertion", None),
        ("null", None),
        ("assertion.long", None),
        ("9223372036854775807 + 1", None),
    ],
)
def test_an_expression_makes_an_attribute(expression: str, value: object) -> None:
    check(expression)
    found = evaluate(expression, CLAIMS)
    assert (found, type(found)) == (value, type(value))


BOMBS = [
    # Macros and patterns loop.
    "assertion.groups.map(x, x + x)", "assertion.groups.all(x, x != '')",
    "[1, 2].exists(x, x > 1)", "assertion.groups.filter(x, true)",
    "[[1], [2]].map(x, x.map(y, [1, 2].map(z, z)))", 'assertion.sub.matches("(a+)+$")',
    'matches(assertion.sub, "(a|a)*$")', "assertion.groups.reduce(r, x, 0, r + x)",
    # The scanner goes back and forth over escapes.
    '"' + "\\\\" * 450, '"' + "\\a" * 400 + '"', "'''" + "a" * 900, '"""a"""',
    # Errors double at each of these.
    "||".join(["assertion.x"] * 60), "&&".join(["assertion.x"] * 60),
    "assertion.x||" * 9 + "assertion.x", "assertion.x ? 1 : " * 9 + "2",
    # Deep or long.
    "(" * 400 + "1" + ")" * 400, "[" * 9 + "]" * 9, "-" * 900 + "1", "!" * 900 + "true",
    "assertion" + ".a" * 400, "assertion" + "[0]" * 300, "assertion.x+" * 80 + "assertion.x",
    '(")' * 20 + "1" + '")' * 20, '(")"+' * 20 + "'a'" + ")" * 20,
    "string(" * 20 + "1" + ")" * 20, "1+" * 25 + "1", "a" * 1001, "",
    # Names of other things.
    "request", "celpy", "__import__('os')", "assertion.sub.__class__()", "open('/etc/passwd')",
    "type(assertion)", "dyn(assertion)", "duration('1h')", "timestamp(assertion.sub)",
    "bytes('a')", "int('9')", "double('1e308')", "uint(1)", "getDate()", ".assertion",
    ".size(assertion)", "assertion{a: 1}", "{'a': 1}", "assertion.f(1)",
    # No expression at all.
    "assertion.", "1 +", "//", "assertion sub", "assertion;assertion", "\n", "é",
]  # fmt: skip


@pytest.mark.parametrize("expression", BOMBS, ids=range(len(BOMBS)))
def test_what_could_explode_is_refused_at_once(expression: str) -> None:
    def refused() -> None:
        with pytest.raises(ExpressionRefused):
            check(expression)
        assert evaluate(expression, CLAIMS) is None

    assert thread_seconds(refused) < 0.5


WORST = [
    "||".join(["assertion.absent.absent"] * 9),
    "&&".join(['(assertion.long + assertion.long + "")'] * 5),
    "assertion.absent" + "||(assertion.absent" * 7 + ")" * 7,
    "+".join(["assertion.long"] * 12),
    "assertion.long.contains(assertion.long + 'y') && " * 5 + "true",
    "((((((([1] == [2])))))))" + " == [1]" * 15,
    "1" + "+1" * 24,
    "-1" + "*-1" * 11,
    '"' + "' " * 490 + '"',
    '"' + "é" * 990 + '"',
    "[" + "1," * 400 + "1]",
    "9" * 900,
    "1." + "9" * 900,
]


@pytest.mark.parametrize("expression", WORST, ids=range(len(WORST)))
def test_the_worst_that_is_taken_ends_soon(expression: str) -> None:
    def taken() -> None:
        check(expression)
        evaluate(expression, CLAIMS)

    assert thread_seconds(taken) < 0.5


def test_claims_that_nest_deeply_match_nothing() -> None:
    deep: Any = "bottom"
    for _ in range(5000):
        deep = [deep]
    assert evaluate("assertion.sub", {"sub": "a", "deep": deep}) is None
    assert evaluate("assertion.big", {"big": 10**400}) is None
