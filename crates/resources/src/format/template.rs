//! `{{ key }}` in a text, replaced by the values a user gave for it (`-v key=value`).
//!
//! Without values nothing is touched, because resources contain templates of their own: those name
//! fields (`{{ .DisplayName }}`) or call functions and are left alone with values, too.

use std::collections::BTreeMap;

/// A place in the input that names a variable without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingVariable {
    pub name: String,
    pub line: usize,
    pub column: usize,
}

/// The text with every variable replaced, or all variables without a value.
pub fn render(text: &str, vars: &BTreeMap<String, String>) -> Result<String, Vec<MissingVariable>> {
    if vars.is_empty() {
        return Ok(text.to_owned());
    }
    let (rendered, missing) = fill(text, vars);
    if missing.is_empty() { Ok(rendered) } else { Err(missing) }
}

/// Every place that names a variable, for a text that was read without values and turned out to be wrong.
pub fn variables(text: &str) -> Vec<MissingVariable> {
    fill(text, &BTreeMap::new()).1
}

fn fill(text: &str, vars: &BTreeMap<String, String>) -> (String, Vec<MissingVariable>) {
    let mut out = String::with_capacity(text.len());
    let mut missing = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let (before, opened) = rest.split_at(start);
        out.push_str(before);
        let Some((inside, length)) = placeholder(opened) else {
            out.push_str("{{");
            rest = &opened[2..];
            continue;
        };
        match vars.get(inside) {
            Some(value) => out.push_str(value),
            None => missing.push(locate(text, text.len() - opened.len(), inside)),
        }
        rest = &opened[length..];
    }
    out.push_str(rest);
    (out, missing)
}

/// The name in `{{ name }}` or `{{{ name }}}`, and how long the whole is.
fn placeholder(opened: &str) -> Option<(&str, usize)> {
    let (open, close) = if opened.starts_with("{{{") { ("{{{", "}}}") } else { ("{{", "}}") };
    let body = opened.strip_prefix(open)?;
    let end = body.find(close)?;
    let name = body[..end].trim();
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    plain.then_some((name, open.len() + end + close.len()))
}

impl std::fmt::Display for MissingVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MissingVariable { name, line, column } = self;
        write!(f, "{line}:{column}: no value for {{{{ {name} }}}}; pass -v {name}=…")
    }
}

fn locate(text: &str, offset: usize, name: &str) -> MissingVariable {
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    MissingVariable {
        name: name.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn variables_are_replaced_and_templates_of_resources_are_not() {
        let check = |text: &str, pairs: &[(&str, &str)], expect: &str| {
            assert_eq!(render(text, &vars(pairs)).as_deref(), Ok(expect), "{text}");
        };
        check("a: {{ x }}", &[], "a: {{ x }}");
        check("a: {{ x }}{{x}}{{{ x }}}", &[("x", "1")], "a: 111");
        check("a: {{ .DisplayName }}.{{ x }}", &[("x", "mesh")], "a: {{ .DisplayName }}.mesh");
        check("a: {{ label \"b\" }} {{ x", &[("x", "1")], "a: {{ label \"b\" }} {{ x");
        check("a: {{ x }}", &[("x", "<&>\"{{ x }}")], "a: <&>\"{{ x }}");
        check("{a: {b: {{ x }}}}", &[("x", "1")], "{a: {b: 1}}");
    }

    #[test]
    fn a_variable_without_a_value_is_named_with_its_place() {
        let missing = render("a: 1\nb: {{ port }}\n", &vars(&[("x", "1")])).unwrap_err();
        assert_eq!(missing, [MissingVariable { name: "port".to_owned(), line: 2, column: 4 }]);
        assert_eq!(variables("a: {{ .x }}\nb: {{ port }}\n"), missing);
    }
}
