use super::check;

fn reason(expression: &str) -> Option<String> {
    check(expression).err().map(|error| error.to_string())
}

#[test]
fn expressions_that_re2_reads_are_fine() {
    for expression in [
        "/v[0-9]+/.*",
        "a*?b+?c??d{2}?e{2,}f{2,3}g{0}",
        "(a{2}){3}|(?:b*)*|()|(|c)|",
        "a{1000}",
        "(a{100}){10}",
        "(a{500,}){2}",
        "((a{1}){1000}){1}",
        "(?i)a(?-s:b)(?i-s:c)(?U)d(?)e(?ms)",
        "(?P<name_1>a)(?<other>b)(?P<1>c)",
        r"\A\b\B\z\C^$.\d\D\s\S\w\W",
        r"\a\f\t\n\r\v\0\07\08\123\377\x41\x{41}\x{0041}\x{ff}",
        r"\%\-\/\_\ \\\.\[\{\<",
        r"\pL\PL\p{L}\p{^Greek}\P{Lu}\p{Any}",
        r"\Qa.b(\E*\Q",
        "[a-z][^a][]a][^]a][a-][-a][a-b-c][[a][a[b]c][^^][--a][]-a]",
        r"[\d-z][\pL\d\-\]\n\x41-\x42][[:alpha:]-z][[:^alpha:]][[:alpha]",
        "{id}/a{,5}a{a{1a{01}a{+1}",
        "é[a-é]\u{1}",
    ] {
        assert_eq!(check(expression), Ok(()), "{expression}");
    }
}

#[test]
fn what_re2_does_not_read_is_named() {
    for (expression, expect) in [
        ("(a", "missing closing )"),
        ("a)", "unexpected )"),
        ("[a", "missing closing ]"),
        ("[]", "missing closing ]"),
        ("*a", "nothing to repeat before *"),
        ("(+)", "nothing to repeat before +"),
        ("a|{2}", "nothing to repeat before {2}"),
        ("a**", "* follows another repetition; use a group"),
        ("a*??", "? follows another repetition; use a group"),
        ("a{2}{3}", "{3} follows another repetition; use a group"),
        ("a{1001}", "bad count {1001}: at most 1000, also of repetitions in repetitions"),
        ("a{3,2}", "bad count {3,2}: at most 1000, also of repetitions in repetitions"),
        ("(a{100}){11}", "bad count {11}: at most 1000, also of repetitions in repetitions"),
        ("(a{2,}){501}", "bad count {501}: at most 1000, also of repetitions in repetitions"),
        (
            "a{1,18446744073709551615}",
            "bad count {1,18446744073709551615}: at most 1000, also of repetitions in repetitions",
        ),
        ("(?P<n.x>a)", r#"bad name of a group: "n.x""#),
        ("(?<n", "missing > of a group's name"),
        (r"\1", r"bad escape \1: there are no references to groups"),
        (r"\Z", r"bad escape \Z"),
        (r"\u0041", r"bad escape \u"),
        (r"\", r"bad escape \at the end"),
        (r"\400", r"bad escape \of a number above \377"),
        (r"\x{100}", r"bad escape \x100: two digits, or {} around a number up to ff"),
        (r"\x4", r"\x needs two digits"),
        (r"\p{greek}", r"unknown group of characters \p{greek}"),
        (r"\p{Letter}", r"unknown group of characters \p{Letter}"),
        (r"\p", r"missing name behind \p"),
        ("[z-a]", "a range in [] must not end before it begins"),
        ("[é-z]", "a range in [] must not end before it begins"),
        (r"[a-\d]", r"bad escape \d"),
        (r"[\b]", r"bad escape \b"),
        ("[[:nope:]]", "unknown class [:nope:]"),
        (&"(?:abcdefghij){1000}".repeat(10), "the expression is too large"),
    ] {
        assert_eq!(reason(expression).as_deref(), Some(expect), "{expression}");
    }
    let flags = "after (? only the flags i, m, s and U or a name are allowed; lookaround is not supported";
    for expression in [
        "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?#a)", "(?x)a", "(?u)a", "(?-)a", "(?s-)a",
        "(?P=n)", "(?",
    ] {
        assert_eq!(reason(expression).as_deref(), Some(flags), "{expression}");
    }
}
