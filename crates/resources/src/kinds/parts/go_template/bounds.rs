//! Bounds on what a template may cost. It is rendered for each service or set of tags, so one that doubles its work or
//! its text again and again must end early, with an error that names the limit.
//!
//! Three things could grow without end: templates that call templates (counted before the first rendering), loops
//! (counted by the executor), and the text that functions build from their own results (cut off by the functions here).

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use gotmpl::{
    Template, TemplateError, Value,
    parse::{DefineNode, ListNode, Node},
};

/// The longest template that is accepted: far longer than any name, and short enough to be read often.
const TEXT_MAX: usize = 1024;
/// Limit of a template's output and of each value within it; no name is as long.
const RENDERED_MAX: usize = 2048;
/// Limit of a template's nodes, counting the nodes of every template that it calls.
const STEPS_MAX: u64 = 1000;
/// Limit of repetitions in a template.
const REPETITIONS_MAX: u64 = 100;
/// The parser calls itself for each of these.
const PARENTHESES_MAX: usize = 50;
/// The functions whose result may be longer than what they are given.
const BUILDERS: [&str; 6] = ["html", "js", "print", "printf", "println", "urlquery"];

/// Bound that a template exceeds before it is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExceededBound {
    #[error("the template has {0} bytes, more than {TEXT_MAX}")]
    Text(usize),
    #[error("the template has {0} opening parentheses, more than {PARENTHESES_MAX}")]
    Parentheses(usize),
    #[error(
        "the template takes more than {STEPS_MAX} steps, counting each template again wherever it is called, or \
         calls itself"
    )]
    Steps,
}

/// Checks what must hold before a template is parsed.
pub(super) fn check_text(text: &str) -> Result<(), ExceededBound> {
    if text.len() > TEXT_MAX {
        return Err(ExceededBound::Text(text.len()));
    }
    let parentheses = text.bytes().filter(|byte| *byte == b'(').count();
    if parentheses > PARENTHESES_MAX { Err(ExceededBound::Parentheses(parentheses)) } else { Ok(()) }
}

/// Checks that a parsed template ends soon.
pub(super) fn check_steps(tree: &ListNode, defines: &[DefineNode]) -> Result<(), ExceededBound> {
    let mut steps = Steps { bodies: BTreeMap::new(), known: BTreeMap::new() };
    for define in defines {
        steps.bodies.entry(define.name.as_str()).or_default().push(&define.body);
    }
    if steps.of_list(tree) > STEPS_MAX { Err(ExceededBound::Steps) } else { Ok(()) }
}

struct Steps<'a> {
    bodies: BTreeMap<&'a str, Vec<&'a ListNode>>,
    /// Steps of calling each template; `u64::MAX` during the count, so that recursion exceeds the limit.
    known: BTreeMap<&'a str, u64>,
}

impl<'a> Steps<'a> {
    fn of_list(&mut self, list: &'a ListNode) -> u64 {
        list.nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(self.of_node(node)))
    }

    fn of_node(&mut self, node: &'a Node) -> u64 {
        let inside = match node {
            Node::List(list) => self.of_list(list),
            Node::If(branch) | Node::Range(branch) | Node::With(branch) => {
                let otherwise = branch.else_body.as_ref().map_or(0, |list| self.of_list(list));
                self.of_list(&branch.body).saturating_add(otherwise)
            }
            Node::Template(call) => self.of_call(call.name.as_str()),
            Node::Define(_) | Node::Action(_) | Node::Text(_) | Node::Break(_) | Node::Continue(_) => 0,
        };
        inside.saturating_add(1)
    }

    fn of_call(&mut self, name: &'a str) -> u64 {
        match self.known.entry(name) {
            Entry::Occupied(known) => return *known.get(),
            Entry::Vacant(unknown) => {
                unknown.insert(u64::MAX);
            }
        }
        let bodies = self.bodies.get(name).cloned().unwrap_or_default();
        let steps = bodies.into_iter().fold(0, |sum: u64, body| sum.saturating_add(self.of_list(body)));
        self.known.insert(name, steps);
        steps
    }
}

/// A template that repeats little and whose functions build short texts.
pub(super) fn limited(template: Template) -> Template {
    let template = template.max_range_iters(REPETITIONS_MAX).func("index", index);
    BUILDERS.into_iter().fold(template, |template, name| {
        template.func(name, move |arguments| build(name, arguments).map(|text| Value::String(text.into())))
    })
}

/// A value within another one. In Go what a map of texts does not have is an empty text.
fn index(arguments: &[Value]) -> Result<Value, TemplateError> {
    let Some((value, keys)) = arguments.split_first() else {
        return Err(TemplateError::Exec("wrong number of args for index: want at least 1 got 0".into()));
    };
    keys.iter().try_fold(value.clone(), |value, key| match (&value, key) {
        (Value::Map(map), Value::String(key)) => {
            Ok(map.get(key).cloned().unwrap_or_else(|| Value::String("".into())))
        }
        (Value::String(text), Value::Int(at)) => {
            let byte = usize::try_from(*at).ok().and_then(|at| text.as_bytes().get(at));
            let byte = byte.ok_or_else(|| TemplateError::Exec(format!("index out of range: {at}")))?;
            Ok(Value::Int(i64::from(*byte)))
        }
        (value, key) => Err(TemplateError::Exec(format!("cannot index {value} with {key}"))),
    })
}

/// Applies a built-in function to its arguments. The library exports no such function, but a template can
/// call it.
fn build(function: &str, arguments: &[Value]) -> Result<String, TemplateError> {
    let names = (0..arguments.len()).map(|i| format!("a{i}"));
    let calls: String = names.clone().map(|name| format!(" .{name}")).collect();
    let call = Template::new("").parse(&format!("{{{{{function}{calls}}}}}"))?;
    let values = names.zip(arguments).map(|(name, value)| (name.into(), value.clone())).collect();
    render(&call, &Value::Map(std::sync::Arc::new(values)))
}

/// Renders a template, up to a length.
pub(crate) fn render(template: &Template, data: &Value) -> Result<String, TemplateError> {
    let mut out = BoundedText { text: String::new(), full: false };
    match template.execute_fmt(&mut out, data) {
        Ok(()) => Ok(out.text),
        Err(_) if out.full => {
            Err(TemplateError::Exec(format!("the template writes more than {RENDERED_MAX} bytes")))
        }
        Err(error) => Err(error),
    }
}

/// Takes so much text and no more.
struct BoundedText {
    text: String,
    full: bool,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.full |= self.text.len() + text.len() > RENDERED_MAX;
        if self.full {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::go_template::compile;

    fn rendered(text: &str) -> Result<String, String> {
        let service = Value::String("backend".into());
        let data = Value::Map(std::sync::Arc::new([("service".into(), service)].into_iter().collect()));
        let template = compile(Template::new(""), text, &[]).map_err(|error| error.message)?;
        render(&template, &data).map_err(|error| error.to_string())
    }

    /// Templates that each call the next one so often.
    fn nested(levels: usize, calls: usize) -> String {
        let define = |level: usize| {
            let call = format!("{{{{template \"{}\"}}}}", level + 1);
            format!("{{{{define \"{level}\"}}}}{}{{{{end}}}}", call.repeat(calls))
        };
        let defines: String = (0..levels).map(define).collect();
        format!("{defines}{{{{define \"{levels}\"}}}}{{{{end}}}}{{{{template \"0\"}}}}a")
    }

    #[test]
    fn templates_that_call_templates_are_counted_each_time() {
        assert_eq!(rendered(&nested(7, 2)), Ok("a".into()));
        let limit = "the template takes more than 1000 steps";
        for hostile in [nested(16, 2), nested(11, 4), nested(4, 10)] {
            assert!(rendered(&hostile).unwrap_err().contains(limit), "{hostile}");
        }
        let endless = "{{define \"a\"}}{{template \"b\"}}{{end}}{{define \"b\"}}{{template \"a\"}}{{end}}";
        assert!(rendered(&format!("{endless}{{{{template \"a\"}}}}")).unwrap_err().contains(limit));
        assert_eq!(
            rendered("{{define \"x\"}}{{.}}.mesh{{end}}{{template \"x\" .service}}").as_deref(),
            Ok("backend.mesh")
        );
        assert_eq!(rendered("{{block \"x\" .service}}{{.}}{{end}}.mesh").as_deref(), Ok("backend.mesh"));
    }

    #[test]
    fn loops_within_loops_are_counted_together() {
        assert_eq!(rendered("{{range 9}}{{range 9}}a{{end}}{{end}}").map(|text| text.len()), Ok(81));
        let nested = format!("{}{}", "{{range 9}}".repeat(20), "{{end}}".repeat(20));
        for hostile in ["{{range 1000000000}}{{end}}", &nested] {
            assert!(rendered(hostile).unwrap_err().contains("range"), "{:?}", rendered(hostile));
        }
    }

    #[test]
    fn texts_that_double_are_cut_off() {
        let doubling = format!("{{{{$x := .service}}}}{}a", "{{$x = print $x $x}}".repeat(45));
        let nested = format!("{{{{$x := .service}}}}{}a", "{{$x = printf \"%s%s\" $x $x}}".repeat(30));
        let escaping = "{{$x := \"\\\"\"}}{{range 90}}{{$x = js $x}}{{end}}a";
        let wide = "{{printf \"%60000s\" .service}}";
        for hostile in [&doubling, &nested, escaping, wide] {
            let limit = "writes more than 2048 bytes";
            assert!(rendered(hostile).unwrap_err().contains(limit), "{:?}", rendered(hostile));
        }
    }

    #[test]
    fn long_templates_and_deep_ones_are_not_parsed() {
        assert!(rendered(&"a".repeat(1025)).unwrap_err().contains("has 1025 bytes, more than 1024"));
        let deep = format!("{{{{{}1{}}}}}", "(".repeat(500), ")".repeat(500));
        assert!(rendered(&deep).unwrap_err().contains("500 opening parentheses, more than 50"));
        let blocks = format!("{}a{}", "{{if 1}}".repeat(68), "{{end}}".repeat(68));
        assert_eq!(rendered(&blocks).as_deref(), Ok("a"));
    }

    #[test]
    fn functions_build_what_they_build_in_go() {
        for (text, expect) in [
            ("{{print 1 2 \"a\" \"b\" 3}}", "1 2ab3"),
            ("{{println \"a\" 1}}", "a 1\n"),
            ("{{printf \"%03d-%q-%v\" 7 .service true}}", "007-\"backend\"-true"),
            ("{{html \"<a>\"}}{{js \"'\"}}{{urlquery \"a b\"}}", "&lt;a&gt;\\'a+b"),
            ("{{.service | printf \"%s.%s\" \"v1\"}}", "v1.backend"),
        ] {
            assert_eq!(rendered(text).as_deref(), Ok(expect), "{text}");
        }
    }
}
