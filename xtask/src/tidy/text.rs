//! Files as text: length, forbidden words, links that lead nowhere.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{prose, test_names, type_names};
use crate::run;

const LONGEST_SOURCE: usize = 500;
/// Words that plain technical English does without: name the client, caller, user or proxy instead.
const VAGUE: [&str; 9] = [
    "whoever",
    "nobody",
    "everybody",
    "is told",
    "by and by",
    "save for",
    "believed",
    "turned away",
    "at leisure",
];
/// The same in prose. In code they are names.
const VAGUE_IN_PROSE: [&str; 3] = ["told", "besides", "believes"];
/// Names of durations.
const DURATIONS: [&str; 9] =
    ["delay", "duration", "elapsed", "interval", "pause", "patience", "time", "timeout", "took"];
/// A longer file explains itself in its first lines with these words.
const EXCUSE: &str = "Longer than 500 lines because";

pub fn check() -> anyhow::Result<Vec<String>> {
    let root = run::root();
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    let mut findings = Vec::new();
    let mut openers = prose::Openers::default();
    let mut test_names = test_names::LongNames::default();
    let mut type_names = type_names::TypeNames::default();
    for path in files {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        match path.extension().and_then(|e| e.to_str()) {
            Some("rs") => {
                check_source(&name, &text, &mut findings);
                check_words(&name, &text, &mut findings);
                openers.add(&name, &text);
                test_names.add(&name, &text);
                type_names.add(&name, &text);
            }
            Some("md") => {
                check_document(&path, &name, &text, &mut findings);
                check_words(&name, &text, &mut findings);
            }
            _ => {}
        }
    }
    findings.extend(openers.findings());
    findings.extend(test_names.findings());
    findings.extend(type_names.findings());
    Ok(findings)
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        if hidden || name == "target" || name == "node_modules" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn check_source(name: &str, text: &str, findings: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > LONGEST_SOURCE && !text.lines().take(12).any(|line| line.contains(EXCUSE)) {
        findings
            .push(format!("{name} has {lines} lines; split it, or say why at the top: \"// {EXCUSE} …\""));
    }
    // Spelled in two halves so that this file does not find itself.
    let forbidden = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("dbg", "!("),
        concat!("#[ig", "nore"),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
    ];
    for (number, line) in text.lines().enumerate() {
        if let Some(field) = duration_field(line) {
            let number = number + 1;
            findings.push(format!("{name}:{number}: log {field:?} as a number, such as {field}_ms"));
        }
        for word in forbidden {
            if line.contains(word) {
                findings.push(format!("{name}:{}: {word:?} has no place on main", number + 1));
            }
        }
    }
}

/// The name of a duration that a line of the log would show as text such as `1.5s`, which no program can compare.
fn duration_field(line: &str) -> Option<&str> {
    line.match_indices('?').find_map(|(at, _)| {
        let before = &line[..at];
        let after = &line[at + 1..];
        let end = after.find(|c: char| !c.is_alphanumeric() && !"_.".contains(c)).unwrap_or(after.len());
        let field = after[..end].rsplit('.').next()?;
        // `?` that ends an expression has a letter or a bracket before it, the one of a field has not.
        let is_field = !before.ends_with(|c: char| c.is_alphanumeric() || ")]}_".contains(c));
        let is_duration = |name: &&str| field == *name || field.ends_with(&format!("_{name}"));
        (is_field && DURATIONS.iter().any(is_duration)).then_some(field)
    })
}

fn check_document(path: &Path, name: &str, text: &str, findings: &mut Vec<String>) {
    if name == "ARCHITECTURE.md" {
        findings.extend(prose::architecture(text));
    }
    for number in empty_code_spans(text) {
        findings
            .push(format!("{name}:{number}: a code span is empty: write \"(empty)\" if nothing is meant"));
    }
    for target in links(text) {
        let file = target.split('#').next().unwrap_or_default();
        let is_local = !file.is_empty() && !file.contains("://") && !file.starts_with("mailto:");
        if is_local && !path.parent().is_some_and(|dir| dir.join(file).exists()) {
            findings.push(format!("{name}: the link to {target} leads nowhere"));
        }
    }
}

/// Decisions are left as they were written, and this file has the list. Tests may use any words as data, so that only
/// their comments count.
fn check_words(name: &str, text: &str, findings: &mut Vec<String>) {
    let exempt = name.starts_with("docs/decisions/") || name == "xtask/src/tidy/text.rs";
    if exempt {
        return;
    }
    let is_test = name.starts_with("tests/")
        || ["/tests/", "/tests.rs", "/benches/"].iter().any(|it| name.contains(it));
    let counts = |line: &str| !is_test || line.trim_start().starts_with("//");
    for (number, line) in text.lines().enumerate().filter(|(_, line)| counts(line)) {
        let is_prose = name.ends_with(".md") || line.trim_start().starts_with("//");
        let in_prose = VAGUE_IN_PROSE.into_iter().filter(|_| is_prose);
        for word in VAGUE.into_iter().chain(in_prose).filter(|word| says(line, word)) {
            findings.push(format!(
                "{name}:{}: {word:?} is vague: name the client, caller, user or proxy",
                number + 1
            ));
        }
    }
}

/// True if a line has these words as words. In quotation marks of their own they are a name, such as a user of the
/// system.
fn says(line: &str, words: &str) -> bool {
    let line = line.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(words).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + words.len()..].chars().next();
        let quoted = |mark: char| before == Some(mark) && after == Some(mark);
        !before.is_some_and(is_word) && !after.is_some_and(is_word) && !quoted('"') && !quoted('`')
    })
}

/// The numbers of lines with two backticks and nothing between them, outside of blocks of code.
fn empty_code_spans(text: &str) -> Vec<usize> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block && line.split(|c| c != '`').any(|run| run.len() == 2) {
            found.push(number + 1);
        }
    }
    found
}

/// The targets of `[text](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_in(text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check_source("a.rs", text, &mut findings);
        findings
    }

    #[test]
    fn a_long_file_needs_an_excuse() {
        let long = "let x = 1;\n".repeat(501);
        assert_eq!(findings_in(&long).len(), 1);
        assert_eq!(findings_in(&format!("// {EXCUSE} it is one table.\n{long}")), Vec::<String>::new());
    }

    #[test]
    fn durations_are_logged_as_numbers() {
        // The mark apart, so that this file does not find itself.
        for line in ["warn!(@delay, x);", "interval = @collector.interval,", "info!(@kind, @drain_time, x)"] {
            assert_eq!(findings_in(&line.replace('@', "?")).len(), 1, "{line}");
        }
        for line in
            ["let delay = parse(text)@;", "took_ms = took.as_millis(),", "(@kind, delay)", "a()@.timeout"]
        {
            assert_eq!(findings_in(&line.replace('@', "?")), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(findings_in(concat!("fn f() { to", "do!() }")).len(), 1);
    }

    #[test]
    fn vague_words_are_found_but_not_in_names_and_decisions() {
        let findings_in = |name: &str, text: &str| {
            let mut findings = Vec::new();
            check_words(name, text, &mut findings);
            findings
        };
        for line in ["// Whoever asks is answered.", "The proxy told us.", "All of them, save for one."] {
            assert_eq!(findings_in("ARCHITECTURE.md", line).len(), 1, "{line}");
        }
        assert_eq!(findings_in("a.rs", "let told = 1;\n// What it was told.\n").len(), 1, "only prose");
        for line in ["let nobody_waits = 1;", "runs as `nobody`", "user(\"nobody\")", "clients ask"] {
            assert_eq!(findings_in("a.rs", line), Vec::<String>::new(), "{line}");
        }
        assert_eq!(findings_in("docs/decisions/0001.md", "nobody"), Vec::<String>::new());
        let test = "let nobody = 1;\n// nobody\n";
        assert_eq!(findings_in("crates/a/tests/it/b.rs", test).len(), 1, "the comment");
    }

    #[test]
    fn empty_code_spans_are_found_outside_of_blocks_of_code() {
        let text = "a `b` c\n| x | `` | y |\n```text\n``\n```\n";
        assert_eq!(empty_code_spans(text), [2]);
    }

    #[test]
    fn links_are_taken_from_markdown() {
        let found: Vec<_> = links("see [a](b.md#c) and [d](http://e)").collect();
        assert_eq!(found, ["b.md#c", "http://e"]);
    }
}
