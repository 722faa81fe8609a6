//! Go templates as users write them into resources.
//!
//! Go refuses a template that calls an unknown function when it is parsed, wherever the call stands.
//! Here that would show only when the call is reached, so templates are searched for such calls first.
//! The same goes for more that the parser takes and Go's does not ([`strict`]), and for what would take too long
//! ([`bounds`]).

mod bounds;
mod strict;
#[cfg(test)]
mod vectors;

use gotmpl::{
    Template, TemplateError,
    parse::{DefineNode, Expr, ListNode, Node, Parser, PipeNode, Pos},
};

pub(crate) use bounds::render;

/// The functions every Go template may call.
const BUILTINS: [&str; 19] = [
    "and", "call", "eq", "ge", "gt", "html", "index", "js", "le", "len", "lt", "ne", "not", "or", "print",
    "printf", "println", "slice", "urlquery",
];

/// Reason that a template cannot be used, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompileError {
    pub message: String,
    /// The name that was called but is no function.
    pub unknown_function: Option<String>,
    /// Position of the parser at the error, if known.
    pub at: Option<Position>,
}

/// A place in a template, counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    fn of(text: &str, offset: usize) -> Position {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Position { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1 }
    }
}

/// Parses a template; functions beyond the builtins must already be registered with it and be named
/// in `functions`.
pub(crate) fn compile(template: Template, text: &str, functions: &[&str]) -> Result<Template, CompileError> {
    let too_much = |bound: bounds::ExceededBound| CompileError {
        message: bound.to_string(),
        unknown_function: None,
        at: None,
    };
    bounds::check_text(text).map_err(too_much)?;
    let unknown = match parse(text) {
        Ok((tree, defines)) => {
            strict::check_blocks(text)?;
            bounds::check_steps(&tree, &defines).map_err(too_much)?;
            let unknown = unknown_function(&tree, &defines, functions);
            if unknown.is_none() {
                let refused =
                    |(at, message): (Pos, String)| syntax_error(Position::of(text, at.offset), &message);
                strict::check_tree(&tree, &defines).map_err(refused)?;
            }
            unknown
        }
        Err(error) => {
            // Go reads from left to right, so it comes upon the function before it misses the end.
            let closed = parse(&format!("{text}}}}}")).ok();
            let unknown = closed.and_then(|(tree, defines)| unknown_function(&tree, &defines, functions));
            Some(unknown.ok_or_else(|| in_go_words(text, error))?)
        }
    };
    match unknown {
        Some((at, name)) => Err(CompileError {
            message: format!("template: :{}: function {name:?} not defined", at.line),
            unknown_function: Some(name),
            at: Some(Position::of(text, at.offset)),
        }),
        None => bounds::limited(template).parse(text).map_err(|error| in_go_words(text, error)),
    }
}

fn parse(text: &str) -> Result<(ListNode, Vec<DefineNode>), TemplateError> {
    Parser::new(text, "{{", "}}").and_then(Parser::parse)
}

/// The first call of something that is no function.
fn unknown_function(tree: &ListNode, defines: &[DefineNode], functions: &[&str]) -> Option<Unknown> {
    let known = |name: &str| BUILTINS.contains(&name) || functions.contains(&name);
    let mut lists = std::iter::once(tree).chain(defines.iter().map(|define| &define.body));
    lists.find_map(|list| unknown_in_list(list, &known))
}

fn in_go_words(text: &str, error: TemplateError) -> CompileError {
    match error {
        TemplateError::Lex { line, col, message, .. } if message.starts_with("unexpected character") => {
            let message = bad_character(text, line, col).unwrap_or(message);
            syntax_error(Position { line, column: col }, &message)
        }
        TemplateError::Parse { line, col, message, .. } | TemplateError::Lex { line, col, message, .. } => {
            syntax_error(Position { line, column: col }, &message)
        }
        other => CompileError { message: other.to_string(), unknown_function: None, at: None },
    }
}

/// Go's message about a character that is not allowed; it depends on the character before.
fn bad_character(text: &str, line: usize, column: usize) -> Option<String> {
    let mut around = text.lines().nth(line.checked_sub(1)?)?.chars().skip(column.checked_sub(2)?);
    let before = around.next()?;
    let bad = around.next()?;
    let follows_word = before.is_alphanumeric() || before == '_';
    let what = if follows_word { "bad character" } else { "unrecognized character in action:" };
    Some(format!("{what} U+{:04X} '{bad}'", u32::from(bad)))
}

/// Returns the text after an action; strings and comments in the action may contain braces.
fn after_action(action: &str) -> &str {
    if let Some(comment) = action.trim_start_matches(['-', ' ']).strip_prefix("/*") {
        return comment.split_once("*/").map_or("", |(_, rest)| rest);
    }
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in action.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some('"') if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '`' => quote = Some(c),
            None if action[at..].starts_with("}}") => return &action[at..],
            None => {}
        }
    }
    ""
}

fn syntax_error(at: Position, message: &str) -> CompileError {
    CompileError {
        message: format!("template: :{}: {message}", at.line),
        unknown_function: None,
        at: Some(at),
    }
}

type Unknown = (Pos, String);

fn unknown_in_list(list: &ListNode, known: &dyn Fn(&str) -> bool) -> Option<Unknown> {
    list.nodes.iter().find_map(|node| match node {
        Node::List(list) => unknown_in_list(list, known),
        Node::Action(action) => unknown_in_pipe(&action.pipe, known),
        Node::If(branch) | Node::Range(branch) | Node::With(branch) => unknown_in_pipe(&branch.pipe, known)
            .or_else(|| unknown_in_list(&branch.body, known))
            .or_else(|| branch.else_body.as_ref().and_then(|list| unknown_in_list(list, known))),
        Node::Template(call) => call.pipe.as_ref().and_then(|pipe| unknown_in_pipe(pipe, known)),
        Node::Define(define) => unknown_in_list(&define.body, known),
        Node::Text(_) | Node::Break(_) | Node::Continue(_) => None,
    })
}

fn unknown_in_pipe(pipe: &PipeNode, known: &dyn Fn(&str) -> bool) -> Option<Unknown> {
    let mut expressions = pipe.commands.iter().flat_map(|command| &command.args);
    expressions.find_map(|expression| unknown_in_expression(expression, known))
}

fn unknown_in_expression(expression: &Expr, known: &dyn Fn(&str) -> bool) -> Option<Unknown> {
    match expression {
        Expr::Identifier(at, name) if !known(name) => Some((*at, name.to_string())),
        Expr::Pipe(_, pipe) => unknown_in_pipe(pipe, known),
        Expr::Chain(_, inner, _) => unknown_in_expression(inner, known),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Option<String> {
        compile(Template::new(""), text, &["label"]).err().map(|error| error.message)
    }

    #[test]
    fn unknown_functions_are_found_wherever_they_stand() {
        for text in [
            "{{foo}}",
            "{{foo .a}}",
            "{{.a | foo}}",
            "{{print (foo .a)}}",
            "{{if foo}}a{{end}}",
            "{{if .a}}{{else}}{{foo}}{{end}}",
            "{{with .a}}{{foo}}{{end}}",
            "{{range .a}}{{foo}}{{end}}",
            "{{define \"x\"}}{{foo}}{{end}}",
            "{{template \"x\" foo}}",
            "{{(foo).a}}",
        ] {
            let expect = "template: :1: function \"foo\" not defined";
            assert_eq!(error(text).as_deref(), Some(expect), "{text}");
        }
        assert_eq!(error("a\n{{foo}}").as_deref(), Some("template: :2: function \"foo\" not defined"));
    }

    #[test]
    fn the_functions_of_go_and_those_registered_are_known() {
        for text in [
            "{{.a}}",
            "{{printf \"%s\" .a}}",
            "{{label \"a\"}}",
            "{{if eq .a \"b\"}}{{len .a}}{{end}}",
            "{{- if .a -}}{{print \"{{end}} \\\" }}\" `}}`}}{{else if .b}}{{- end -}}",
            "{{/* \" {{if .a}} */}}",
            "",
        ] {
            assert_eq!(error(text), None, "{text}");
        }
    }

    #[test]
    fn mistakes_are_named_in_the_words_of_go() {
        for (text, expect) in [
            ("{{.Name[4 }}", "template: :1: bad character U+005B '['"),
            ("a\n{{ .Name @ }}", "template: :2: unrecognized character in action: U+0040 '@'"),
            ("{{foo", "template: :1: function \"foo\" not defined"),
            ("{{print", "template: :1: unclosed action"),
        ] {
            assert_eq!(error(text).as_deref(), Some(expect), "{text}");
        }
    }

    #[test]
    fn mistakes_in_the_syntax_name_the_line() {
        for text in [
            "{{.a",
            "{{if .a}}",
            "{{.Name[4 }}",
            "{{end}}",
            "{{if .a}}{{end}}{{end}}",
            "{{range .a}}{{if .b}}{{end}}",
        ] {
            let message = error(text).unwrap_or_default();
            assert!(message.starts_with("template: :1: "), "{text}: {message}");
        }
    }
}
