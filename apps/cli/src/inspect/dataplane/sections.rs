//! Policies by the place they apply to, for reading: a paragraph for the proxy, each inbound and each outbound, a line
//! for each policy.

use crate::output;

/// Paragraphs in the order in which they were begun.
#[derive(Default)]
pub struct Sections(Vec<(String, Vec<Vec<String>>)>);

impl Sections {
    /// Adds a line to a paragraph; a line that stands there already is not said twice.
    pub fn add(&mut self, title: &str, line: Vec<String>) {
        let lines = self.begin(title);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }

    pub fn begin(&mut self, title: &str) -> &mut Vec<Vec<String>> {
        let index = match self.0.iter().rposition(|(known, _)| known == title) {
            Some(index) => index,
            None => {
                self.0.push((title.to_owned(), Vec::new()));
                self.0.len() - 1
            }
        };
        &mut self.0[index].1
    }

    /// Columns are aligned within a paragraph, so that one long name does not widen all of them.
    pub fn render(self) -> String {
        let paragraphs = self.0.into_iter().map(|(title, lines)| {
            let lines = if lines.is_empty() { vec![vec!["no policies".to_owned()]] } else { lines };
            let indented: String = output::columns(lines).lines().map(|line| format!("  {line}\n")).collect();
            format!("{title}\n{indented}")
        });
        paragraphs.collect::<Vec<_>>().join("\n")
    }
}
