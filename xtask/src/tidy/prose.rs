//! Prose that a reader must get through: openers of doc comments, length of ARCHITECTURE.md.

use std::collections::BTreeMap;

/// Doc comments in a hundred that may begin with a question word.
const OPENERS_PERCENT: usize = 3;
const QUESTION_WORDS: [&str; 10] =
    ["what", "who", "whom", "whose", "whether", "how", "which", "where", "when", "why"];

const MOST_WORDS: usize = 1600;
const LONGEST_PARAGRAPH: usize = 60;

/// Doc comments of one crate.
#[derive(Debug, Default)]
struct Comments {
    all: usize,
    questions: usize,
}

/// Counts doc comments by crate, and those that begin with a question word.
#[derive(Debug, Default)]
pub struct Openers(BTreeMap<String, Comments>);

impl Openers {
    /// Adds the comments of a source file.
    pub fn add(&mut self, name: &str, text: &str) {
        let comments = self.0.entry(crate_of(name)).or_default();
        for opener in openers(text) {
            comments.all += 1;
            comments.questions += usize::from(asks(opener));
        }
    }

    pub fn findings(&self) -> Vec<String> {
        let too_many = |(name, comments): (&String, &Comments)| {
            let most = comments.all * OPENERS_PERCENT / 100;
            (comments.questions > most).then(|| {
                format!(
                    "{name}: {} of {} doc comments begin with What, Who, Whether, How or the like, {most} may: \
                     begin with a noun or a verb that states a fact",
                    comments.questions, comments.all
                )
            })
        };
        self.0.iter().filter_map(too_many).collect()
    }
}

/// The folder of the crate that a file belongs to.
pub fn crate_of(name: &str) -> String {
    let mut parts = name.split('/');
    let first = parts.next().unwrap_or_default();
    match parts.next() {
        Some(second) if ["apps", "crates", "tests"].contains(&first) => format!("{first}/{second}"),
        _ => first.to_owned(),
    }
}

/// The first lines of blocks of `///` and `//!`.
fn openers(text: &str) -> impl Iterator<Item = &str> {
    let mut before = "";
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        let marker = ["///", "//!"].into_iter().find(|marker| line.starts_with(marker)).unwrap_or_default();
        let begins = !marker.is_empty() && marker != before;
        before = marker;
        begins.then(|| line[marker.len()..].trim())
    })
}

fn asks(opener: &str) -> bool {
    let end = opener.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(opener.len());
    QUESTION_WORDS.contains(&opener[..end].to_ascii_lowercase().as_str())
}

/// Findings about ARCHITECTURE.md: a page to read in one go.
pub fn architecture(text: &str) -> Vec<String> {
    let words = text.split_whitespace().count();
    let mut findings = Vec::new();
    if words > MOST_WORDS {
        findings.push(format!("ARCHITECTURE.md has {words} words, {MOST_WORDS} is the limit"));
    }
    for paragraph in paragraphs(text) {
        let words = paragraph.split_whitespace().count();
        if words > LONGEST_PARAGRAPH {
            let begin: Vec<_> = paragraph.split_whitespace().take(5).collect();
            findings.push(format!(
                "ARCHITECTURE.md: the paragraph \"{} …\" has {words} words, {LONGEST_PARAGRAPH} is the limit",
                begin.join(" ")
            ));
        }
    }
    findings
}

/// Paragraphs, list items and rows of tables, without blocks of code.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut in_block = false;
    for line in text.lines() {
        let is_fence = line.starts_with("```");
        in_block ^= is_fence;
        let item = line.starts_with(['-', '|', '#']) || line.starts_with(|c: char| c.is_ascii_digit());
        if is_fence || item || line.is_empty() {
            found.push(String::new());
        }
        if let Some(last) = found.last_mut().filter(|_| !in_block && !is_fence) {
            last.push_str(line);
            last.push(' ');
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openers_are_the_first_lines_of_doc_comments() {
        let text = "//! A crate.\n//!\n//! What it does.\n\n/// Whether a is b.\n/// How it is.\nfn a() {}\n\n    /// One.\n//// no\n// What\n";
        assert_eq!(openers(text).collect::<Vec<_>>(), ["A crate.", "Whether a is b.", "One."]);
    }

    #[test]
    fn a_question_word_is_a_whole_word() {
        for opener in ["What is it", "Whose?", "how", "Where: there"] {
            assert!(asks(opener), "{opener}");
        }
        for opener in ["Whatever comes", "The way how", "", "`what`", "However"] {
            assert!(!asks(opener), "{opener}");
        }
    }

    #[test]
    fn a_crate_may_have_three_questions_in_a_hundred_doc_comments() {
        let mut openers = Openers::default();
        openers.add("crates/a/src/lib.rs", &"/// A.\nfn a() {}\n".repeat(97));
        openers.add("crates/a/src/b.rs", &"/// What.\nfn a() {}\n".repeat(3));
        openers.add("crates/b/src/lib.rs", "/// A.\nfn a() {}\n");
        assert_eq!(openers.findings(), Vec::<String>::new());
        openers.add("crates/a/tests/it/c.rs", "/// Whether.\nfn a() {}\n");
        let findings = openers.findings();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].starts_with("crates/a: 4 of 101 doc comments"), "{findings:?}");
    }

    #[test]
    fn architecture_has_short_paragraphs_and_few_words() {
        let short = format!("# A\n\n{}\n\n```\n{}\n```\n", "word ".repeat(60), "code ".repeat(70));
        assert_eq!(architecture(&short), Vec::<String>::new());
        let item = format!("- {}\n- {}\n", "word ".repeat(59), "word ".repeat(60));
        assert_eq!(architecture(&item).len(), 1, "the second item");
        let long = "word ".repeat(60) + "\n\n";
        assert_eq!(architecture(&long.repeat(27)), ["ARCHITECTURE.md has 1620 words, 1600 is the limit"]);
    }
}
