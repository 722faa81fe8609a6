//! `-l`: which labels resources must have, in the syntax of Kubernetes' label selectors.

use std::{collections::BTreeSet, fmt, str::FromStr};

use contract::{lenient::read_partly, resource::Metadata};
use resources::naming::dns;
use serde_json::Value;

use crate::client::query_value;

/// Syntax, as `--help` shows it.
pub const HELP: &str = "Only resources whose labels match: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, divided \
                        by commas; repeatable, all must match";

/// Conditions on labels; all must hold. None holds for everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    /// The label has one of these values.
    In(Vec<String>),
    /// The label is absent or has another value.
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Selector {
    /// One selector that demands what all of them do.
    pub fn all(selectors: &[Selector]) -> Selector {
        Selector(selectors.iter().flat_map(|selector| selector.0.iter().cloned()).collect())
    }

    /// The part that the control plane can filter by, as parameters of a query that start with `&`.
    pub fn query(&self) -> String {
        let parameter = |(key, value): (&str, &str)| {
            format!("&{}={}", query_value(&format!("filter[labels.{key}]")), query_value(value))
        };
        self.served().map(parameter).collect()
    }

    /// True if the control plane filters by all of it.
    pub fn is_served(&self) -> bool {
        self.served().count() == self.0.len()
    }

    /// Labels with exactly one value. The control plane takes one value for each.
    fn served(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut seen = BTreeSet::new();
        self.0.iter().filter_map(move |requirement| match &requirement.test {
            Test::In(values) if values.len() == 1 => seen
                .insert(requirement.key.as_str())
                .then_some((requirement.key.as_str(), values[0].as_str())),
            _ => None,
        })
    }

    /// True if a resource, as the REST API shows it, has such labels.
    pub fn matches(&self, resource: &Value) -> bool {
        let labels = read_partly::<Metadata>(resource).labels;
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.key).map(String::as_str);
            let among = |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
            match &requirement.test {
                Test::In(values) => among(values),
                Test::NotIn(values) => !among(values),
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
            }
        })
    }
}

/// Reason why a text is not a selector, and the character, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct SelectorError {
    at: usize,
    why: String,
}

impl std::error::Error for SelectorError {}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at, self.why)
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Selector, SelectorError> {
        let mut reader = Reader { text, at: 0 };
        let mut requirements = Vec::new();
        if reader.peek().is_none() {
            return Ok(Selector::default());
        }
        loop {
            requirements.push(reader.requirement()?);
            match reader.peek() {
                None => return Ok(Selector(requirements)),
                Some(',') => reader.at += 1,
                Some(_) => return Err(reader.wrong("a comma or the end")),
            }
        }
    }
}

/// Reads a selector from left to right.
struct Reader<'t> {
    text: &'t str,
    /// The byte that is next.
    at: usize,
}

impl<'t> Reader<'t> {
    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.takes("!") {
            return Ok(Requirement { key: self.key()?, test: Test::Absent });
        }
        let key = self.key()?;
        let test = if self.takes("!=") {
            Test::NotIn(vec![self.value()?])
        } else if self.takes("==") || self.takes("=") {
            Test::In(vec![self.value()?])
        } else if matches!(self.peek(), None | Some(',')) {
            Test::Exists
        } else {
            let at = self.at;
            match self.word() {
                "in" => Test::In(self.values()?),
                "notin" => Test::NotIn(self.values()?),
                _ => {
                    self.at = at;
                    return Err(self.wrong("`=`, `==`, `!=`, `in`, `notin`, a comma or the end"));
                }
            }
        };
        Ok(Requirement { key, test })
    }

    /// `(a, b)`.
    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        if !self.takes("(") {
            return Err(self.wrong("values in parentheses, such as (a,b)"));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            if self.takes(")") {
                return Ok(values);
            }
            if !self.takes(",") {
                return Err(self.wrong("a comma or `)`"));
            }
        }
    }

    fn key(&mut self) -> Result<String, SelectorError> {
        self.skip_spaces();
        let at = self.at;
        let key = self.word();
        if key.is_empty() {
            return Err(self.wrong("the key of a label"));
        }
        match dns::qualified_name_errors(key).into_iter().next() {
            None => Ok(key.to_owned()),
            Some(why) => Err(self.located(at, format!("{key:?} is not the key of a label: {why}"))),
        }
    }

    /// A value may be empty.
    fn value(&mut self) -> Result<String, SelectorError> {
        self.skip_spaces();
        let at = self.at;
        let value = self.word();
        match dns::label_value_errors(value).into_iter().next() {
            None => Ok(value.to_owned()),
            Some(why) => Err(self.located(at, format!("{value:?} is not the value of a label: {why}"))),
        }
    }

    fn word(&mut self) -> &'t str {
        self.skip_spaces();
        let rest = &self.text[self.at..];
        let ends = |c: char| c.is_whitespace() || matches!(c, '=' | '!' | '(' | ')' | ',' | '<' | '>');
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn takes(&mut self, token: &str) -> bool {
        self.skip_spaces();
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// The next character that is not a space.
    fn peek(&mut self) -> Option<char> {
        self.skip_spaces();
        self.text[self.at..].chars().next()
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn wrong(&mut self, expected: &str) -> SelectorError {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(c @ ('<' | '>')) => format!("`{c}`, which compares numbers and is not supported"),
            Some(c) => format!("`{c}`"),
        };
        self.located(self.at, format!("expected {expected}, found {found}"))
    }

    fn located(&self, byte: usize, why: String) -> SelectorError {
        SelectorError { at: self.text[..byte].chars().count() + 1, why }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matched(selector: &str) -> Vec<&'static str> {
        let selector: Selector = selector.parse().unwrap_or_else(|wrong| panic!("{selector}: {wrong}"));
        let resources = [
            ("none", json!({"name": "none"})),
            ("red", json!({"labels": {"color": "red"}})),
            ("blue", json!({"labels": {"color": "blue", "kuma.io/zone": "east"}})),
            ("empty", json!({"labels": {"color": ""}})),
        ];
        resources.iter().filter(|(_, resource)| selector.matches(resource)).map(|(name, _)| *name).collect()
    }

    #[test]
    fn every_form_of_kubernetes_selects_what_it_does_there() {
        for (selector, expect) in [
            ("", &["none", "red", "blue", "empty"][..]),
            ("color=red", &["red"]),
            ("color == red", &["red"]),
            ("color!=red", &["none", "blue", "empty"]),
            ("color != red , kuma.io/zone", &["blue"]),
            ("color in (red, blue)", &["red", "blue"]),
            ("color in(red)", &["red"]),
            ("color in ()", &["empty"]),
            ("color in (red,,blue)", &["red", "blue", "empty"]),
            ("color notin (red,blue)", &["none", "empty"]),
            ("color", &["red", "blue", "empty"]),
            ("!color", &["none"]),
            ("! kuma.io/zone,color", &["red", "empty"]),
            ("color=", &["empty"]),
            ("color=red,color=blue", &[]),
            ("in=x", &[]),
        ] {
            assert_eq!(matched(selector), expect, "{selector}");
        }
    }

    #[test]
    fn everything_else_is_refused_where_it_is_wrong() {
        for (selector, expect) in [
            ("color=red,", "at character 11: expected the key of a label, found the end"),
            (",color", "at character 1: expected the key of a label, found `,`"),
            ("color in red", "at character 10: expected values in parentheses, such as (a,b), found `r`"),
            ("color in (red", "at character 14: expected a comma or `)`, found the end"),
            (
                "color red",
                "at character 7: expected `=`, `==`, `!=`, `in`, `notin`, a comma or the end, found `r`",
            ),
            ("color===red", "at character 8: expected a comma or the end, found `=`"),
            (
                "color!red",
                "at character 6: expected `=`, `==`, `!=`, `in`, `notin`, a comma or the end, found `!`",
            ),
            ("!color=red", "at character 7: expected a comma or the end, found `=`"),
            ("!!color", "at character 2: expected the key of a label, found `!`"),
            ("size>3", "found `>`, which compares numbers and is not supported"),
            ("a/b/c=d", "at character 1: \"a/b/c\" is not the key of a label: "),
            ("ü=d", "at character 1: \"ü\" is not the key of a label: "),
            ("ok,color=-red", "at character 10: \"-red\" is not the value of a label: "),
        ] {
            let wrong = selector.parse::<Selector>().unwrap_err().to_string();
            assert!(wrong.contains(expect), "{selector}: {wrong}");
        }
    }

    #[test]
    fn the_control_plane_filters_by_equality_and_by_one_value_of_a_key() {
        let query = |text: &str| {
            let selector: Selector = text.parse().unwrap();
            (selector.query(), selector.is_served())
        };
        assert_eq!(query("a=1,b=2"), ("&filter%5Blabels.a%5D=1&filter%5Blabels.b%5D=2".to_owned(), true));
        assert_eq!(query("a=1,b!=2"), ("&filter%5Blabels.a%5D=1".to_owned(), false));
        assert_eq!(query("a=1,a=2"), ("&filter%5Blabels.a%5D=1".to_owned(), false));
        assert_eq!(query("a in (1)"), ("&filter%5Blabels.a%5D=1".to_owned(), true));
        assert_eq!(query(""), (String::new(), true));
    }
}
