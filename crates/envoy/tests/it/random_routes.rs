//! A route that is accepted when written is accepted by a real Envoy.
//!
//! Routes are made of pieces that are valid, almost valid and wrong, by a seed. The test does not ask which
//! of them are refused, only that a fair part is.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use resources::format;
use serde_json::{Value, json};

use crate::{
    real_envoy::judged,
    support::{BACKEND, PLAIN, plan, unified, web},
};

const RULES: u64 = 1500;
const CALLS: &str = "outbound: [{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }]";

const EXPRESSION: &[&str] = &[
    "a",
    "b",
    "/",
    "é",
    "(",
    ")",
    "(a)",
    "[",
    "]",
    "[a-z]",
    "[^",
    "^",
    "$",
    "*",
    "+",
    "?",
    "{2}",
    "{1,3}",
    "{",
    "}",
    "{,5}",
    "{1001}",
    "|",
    "\\d",
    "\\W",
    "\\pL",
    "\\p{Greek}",
    "\\p{^Lu}",
    "\\p{x}",
    "\\1",
    "\\12",
    "\\x41",
    "\\x{e9}",
    "\\x{100}",
    "(?i)",
    "(?i:",
    "(?P<n>",
    "(?<m>",
    "(?x)",
    "(?=",
    "(?:",
    "-",
    ".",
    "\\",
    "[:alpha:]",
    "\\Q",
    "\\E",
    ":",
    "0",
    ",",
    "\\.",
    "\\-",
    "\\b",
    "\\z",
    "\\Z",
    "\\C",
    "{100}",
    "{1000}",
];
const VALUE: &[&str] = &[
    "a",
    " ",
    "\t",
    "é",
    "5",
    "%",
    "%%",
    "%REQ(x-a)%",
    "%REQ(",
    ")%",
    "%REQ(x?y):5%",
    "%START_TIME%",
    "%START_TIME(%Y)%",
    "%START_TIME(%n)%",
    "%PROTOCOL%",
    "%FOO%",
    "%DYNAMIC_METADATA(a:b)%",
    "%FILTER_STATE(a:PLAIN)%",
    "%FILTER_STATE(a:b)%",
    ":5",
    "\n",
    "\u{1}",
    "%ENVIRONMENT(HOME)%",
    "%UPSTREAM_METADATA([\"a\", \"b\"])%",
    "%CEL(",
    "REQ",
    "(",
    ")",
    "?",
];
const NAME: &[&str] =
    &["x-a", "x-b", "host", "Host", ":path", "a b", "", "content-length", "x!", "é", "x-c", "te"];
const PATH: &[&str] =
    &["/", "/a", "/a/", "a", "/é", "/a?b", "/a#b", "/\n", "/%41", "/a\\1", "", "//", "/\u{1}", "/*"];
const HOST: &[&str] = &["example.com", "10.0.0.1", "Example", "a_b", "", "a.b.c", "-a", "a\nb", "*.a"];

struct Source(StdRng);

impl Source {
    fn one(&mut self, from: &[&str]) -> String {
        (*from.choose(&mut self.0).unwrap()).to_owned()
    }

    /// Up to six pieces in a row.
    fn several(&mut self, from: &[&str]) -> String {
        (0..self.0.random_range(1..=6)).map(|_| self.one(from)).collect()
    }

    fn matched(&mut self) -> Value {
        let mut matched = json!({});
        if self.0.random_bool(0.6) {
            let kind = self.one(&["Exact", "PathPrefix", "RegularExpression", "RegularExpression"]);
            let value = if kind == "RegularExpression" { self.several(EXPRESSION) } else { self.one(PATH) };
            matched["path"] = json!({"type": kind, "value": value});
        }
        if self.0.random_bool(0.3) {
            let kind = self.one(&["Exact", "Present", "RegularExpression", "Absent", "Prefix"]);
            let value = match kind.as_str() {
                "RegularExpression" => self.several(EXPRESSION),
                "Present" | "Absent" => String::new(),
                _ => self.several(VALUE),
            };
            matched["headers"] = json!([{"type": kind, "name": self.one(NAME), "value": value}]);
        }
        if self.0.random_bool(0.3) {
            let kind = self.one(&["Exact", "RegularExpression"]);
            let value = self.several(EXPRESSION);
            matched["queryParams"] = json!([{"type": kind, "name": self.one(PATH), "value": value}]);
        }
        if self.0.random_bool(0.2) {
            matched["method"] = json!(self.one(&["GET", "CONNECT", "FETCH"]));
        }
        matched
    }

    fn filter(&mut self) -> Value {
        let mut header = || json!({"name": self.one(NAME), "value": self.several(VALUE)});
        let modifier = json!({"set": [header()], "add": [header()], "remove": [self.one(NAME)]});
        let path = match self.0.random_range(0..3) {
            0 => json!({"type": "ReplaceFullPath", "replaceFullPath": self.one(PATH)}),
            1 => json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": self.one(PATH)}),
            _ => Value::Null,
        };
        let mut url = json!({"hostname": self.one(HOST)});
        if !path.is_null() {
            url["path"] = path;
        }
        match self.0.random_range(0..5) {
            0 => json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": modifier["set"]}}),
            1 => {
                json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": modifier["add"]}})
            }
            2 => {
                json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": modifier["remove"]}})
            }
            3 => {
                url["port"] = json!(self.0.random_range(0..70000));
                json!({"type": "RequestRedirect", "requestRedirect": url})
            }
            _ => json!({"type": "URLRewrite", "urlRewrite": url}),
        }
    }

    fn rule(&mut self) -> Value {
        let matches: Vec<Value> = (0..self.0.random_range(1..=2)).map(|_| self.matched()).collect();
        let filters: Vec<Value> = (0..self.0.random_range(0..=2)).map(|_| self.filter()).collect();
        json!({"matches": matches, "default": {"filters": filters}})
    }
}

fn route(rules: &[Value]) -> Value {
    let target = json!({"kind": "MeshService", "name": "backend", "sectionName": "http"});
    json!({"type": "MeshHTTPRoute", "mesh": "default", "name": "random", "labels": {"kuma.io/zone": "east"},
           "spec": {"to": [{"targetRef": target, "rules": rules}]}})
}

/// A control plane accepts the route when it is written.
fn accepted(rule: &Value) -> bool {
    format::parse(route(std::slice::from_ref(rule))).is_ok_and(|parsed| parsed.draft.validate().is_empty())
}

/// Asserts that Envoy takes all rules, or names one that it does not take.
fn check(rules: &[Value]) {
    let text = route(rules).to_string();
    let plan = plan(&[PLAIN, BACKEND, &text, &web(CALLS)], &unified("web"));
    let Err(refusal) = judged(&plan) else { return };
    match rules {
        [only] => panic!("Envoy refuses what was accepted: {only}\n{refusal}"),
        _ => {
            let (first, second) = rules.split_at(rules.len() / 2);
            check(first);
            check(second);
            panic!("Envoy refuses these only together: {rules:?}\n{refusal}");
        }
    }
}

#[test]
fn what_is_accepted_when_written_is_accepted_by_envoy() {
    let rules: Vec<Value> = (0..RULES).map(|seed| Source(StdRng::seed_from_u64(seed)).rule()).collect();
    let (accepted, refused): (Vec<Value>, Vec<Value>) = rules.into_iter().partition(accepted);
    assert!(accepted.len() > 200 && refused.len() > 200, "{} accepted", accepted.len());
    check(&accepted);
}

/// The pieces of a rule about which Envoy is asked one by one, so that each matters.
#[test]
fn every_expression_and_every_operator_that_is_accepted_is_read_by_envoy() {
    let mut random = Source(StdRng::seed_from_u64(7));
    let expression = |value: String| json!({"matches": [{"path": {"type": "RegularExpression", "value": value}}], "default": {}});
    let mut rules: Vec<Value> = (0..2000).map(|_| expression(random.several(EXPRESSION))).collect();
    let header = |value: String| {
        let set = json!([{"name": "x-a", "value": value}]);
        let filter = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": set}});
        json!({"matches": [{"headers": [{"name": "x-id", "value": value}]}], "default": {"filters": [filter]}})
    };
    rules.extend((0..1000).map(|_| header(random.several(VALUE))));
    let source = include_str!("../../../resources/src/kinds/parts/header_value.rs");
    let is_name = |word: &&str| {
        word.len() > 2 && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    let names: Vec<&str> = source.split('"').filter(is_name).collect();
    assert!(names.len() > 100, "the operators are read from the table of them");
    rules.extend(names.iter().map(|name| header(format!("%{name}% %{name}(x)% %{name}(x):3%"))));
    for form in ["%NAME%", "%NAME(x)%", "%NAME(x):3%", "%NAME:3%"] {
        rules.extend(names.iter().map(|name| header(form.replace("NAME", name))));
    }
    rules.retain(accepted);
    assert!(rules.len() > 500, "{} accepted", rules.len());
    check(&rules);
}
