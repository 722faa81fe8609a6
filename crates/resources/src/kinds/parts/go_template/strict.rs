//! Errors that Go finds when it parses a template. The parser here accepts them, and they would show only
//! during a rendering, or never.

use gotmpl::parse::{BranchNode, DefineNode, Expr, ListNode, Node, PipeNode, Pos};

use super::{CompileError, Position, after_action, syntax_error};

type TemplateError = (Pos, String);

/// Checks variables, loops and pipelines of a parsed template.
pub(super) fn check_tree(tree: &ListNode, defines: &[DefineNode]) -> Result<(), TemplateError> {
    let mut lists = std::iter::once(tree).chain(defines.iter().map(|define| &define.body));
    lists.try_for_each(|list| TemplateScope::default().list(list))
}

/// Variables and loops in scope at a place in a template.
#[derive(Default)]
struct TemplateScope {
    variables: Vec<String>,
    loops: usize,
}

impl TemplateScope {
    fn list(&mut self, list: &ListNode) -> Result<(), TemplateError> {
        list.nodes.iter().try_for_each(|node| match node {
            Node::List(list) => self.list(list),
            Node::Action(action) => self.pipe(&action.pipe),
            Node::If(branch) | Node::With(branch) => self.branch(branch, 0),
            Node::Range(branch) => self.branch(branch, 1),
            Node::Template(call) => call.pipe.as_ref().map_or(Ok(()), |pipe| self.pipe(pipe)),
            Node::Break(at) if self.loops == 0 => Err((*at, "{{break}} outside {{range}}".to_owned())),
            Node::Continue(at) if self.loops == 0 => Err((*at, "{{continue}} outside {{range}}".to_owned())),
            Node::Define(_) | Node::Text(_) | Node::Break(_) | Node::Continue(_) => Ok(()),
        })
    }

    fn branch(&mut self, branch: &BranchNode, loops: usize) -> Result<(), TemplateError> {
        let known = self.variables.len();
        self.pipe(&branch.pipe)?;
        self.loops += loops;
        self.list(&branch.body)?;
        self.loops -= loops;
        branch.else_body.as_ref().map_or(Ok(()), |list| self.list(list))?;
        self.variables.truncate(known);
        Ok(())
    }

    fn pipe(&mut self, pipe: &PipeNode) -> Result<(), TemplateError> {
        for name in &pipe.decl {
            if pipe.is_assign { self.known(pipe.pos, name)? } else { self.variables.push(name.to_string()) }
        }
        for (stage, command) in (1..).zip(&pipe.commands) {
            let first = command.args.first().filter(|_| stage > 1);
            let value = first.filter(|first| {
                matches!(
                    first,
                    Expr::Bool(..) | Expr::Dot(_) | Expr::Nil(_) | Expr::Number(..) | Expr::String(..)
                )
            });
            if let Some(value) = value {
                return Err((value.pos(), format!("non executable command in pipeline stage {stage}")));
            }
            command.args.iter().try_for_each(|expression| self.expression(expression))?;
        }
        Ok(())
    }

    fn expression(&mut self, expression: &Expr) -> Result<(), TemplateError> {
        match expression {
            Expr::Variable(at, name, _) => self.known(*at, name),
            Expr::Pipe(_, pipe) => self.pipe(pipe),
            Expr::Chain(_, inner, _) => self.expression(inner),
            _ => Ok(()),
        }
    }

    fn known(&self, at: Pos, name: &str) -> Result<(), TemplateError> {
        let name = name.trim_start_matches('$');
        let known = |variable: &String| variable.trim_start_matches('$') == name;
        if name.is_empty() || self.variables.iter().any(known) {
            Ok(())
        } else {
            Err((at, format!("undefined variable \"${name}\"")))
        }
    }
}

/// Checks that every block is closed and nothing else is, and what stands in actions.
pub(super) fn check_blocks(text: &str) -> Result<(), CompileError> {
    // Of each open block, what it is and whether its `else` was there.
    let mut open: Vec<(&str, bool)> = Vec::new();
    let mut rest = text;
    while let Some((_, action)) = rest.split_once("{{") {
        let at = Position::of(text, text.len() - action.len());
        let refused = |message: &str| Err(syntax_error(at, message));
        rest = after_action(action);
        let inside = action[..action.len() - rest.len()].trim_start_matches(['-', ' ', '\t', '\n', '\r']);
        if inside.starts_with("/*") {
            // A comment follows its delimiter at once, or the sign that white space before it goes.
            if !action.starts_with("/*") && !action.starts_with('-') {
                return refused("unexpected \"/\" in command");
            }
            continue;
        }
        check_dots(inside).map_err(|message| syntax_error(at, message))?;
        let (word, behind) =
            inside.split_at(inside.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inside.len()));
        match word {
            "if" | "range" | "with" | "define" | "block" => open.push((word, false)),
            "end" if open.pop().is_none() => return refused("unexpected {{end}}"),
            "else" => {
                let behind = behind.trim().trim_end_matches('-').trim_end();
                let again = behind.starts_with("if") || behind.starts_with("with");
                match open.last_mut() {
                    None | Some(("define" | "block", _)) => return refused("unexpected {{else}}"),
                    Some((_, true)) => return refused("expected end; found {{else}}"),
                    Some(_) if !again && !behind.is_empty() => return refused("unexpected operand in else"),
                    Some((_, had)) => *had = !again,
                }
            }
            _ => {}
        }
    }
    if open.is_empty() { Ok(()) } else { Err(syntax_error(Position::of(text, text.len()), "unexpected EOF")) }
}

/// Checks that dots begin fields or are alone: `{{..a}}` and `{{.a.}}` are neither.
fn check_dots(action: &str) -> Result<(), &'static str> {
    let mut quote = None;
    let mut escaped = false;
    // The word that a dot may belong to, and whether the last character was a dot of its own.
    let mut word = String::new();
    let mut dot = false;
    for c in action.chars().chain([' ']) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some('"' | '\'') if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if matches!(c, '"' | '`' | '\'') => (quote, dot) = (Some(c), false),
            None if c == '.' && dot => return Err("unexpected . after term \".\""),
            None if c == '.' => dot = true,
            None => {
                let in_word = c.is_alphanumeric() || c == '_';
                let is_number = word.starts_with(|first: char| first.is_ascii_digit());
                if dot && !in_word && !word.is_empty() && !is_number {
                    return Err("unexpected <.> in operand");
                }
                if in_word {
                    word.push(c)
                } else {
                    word.clear()
                }
                dot = false;
            }
        }
        if quote.is_some() {
            word.clear();
        }
    }
    Ok(())
}
