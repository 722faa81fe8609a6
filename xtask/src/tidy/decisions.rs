//! Pages of decisions: each has a status, and the index lists each with its title and status.

use std::{collections::BTreeMap, fs};

use anyhow::Context;

use crate::run;

const FOLDER: &str = "docs/decisions";

/// The first lines of a page.
#[derive(Debug, PartialEq)]
struct Head {
    title: String,
    status: String,
}

pub fn check() -> anyhow::Result<Vec<String>> {
    let folder = run::root().join(FOLDER);
    let mut pages = BTreeMap::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {FOLDER}"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if name != "README.md" {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {FOLDER}/{name}"))?;
            pages.insert(name, text);
        }
    }
    let index = fs::read_to_string(folder.join("README.md"))
        .with_context(|| format!("reading {FOLDER}/README.md, the index of decisions"))?;
    Ok(compare(&pages, &index))
}

/// Compares pages, by the names of their files, with the index.
fn compare(pages: &BTreeMap<String, String>, index: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut listed = BTreeMap::new();
    for (file, head) in index.lines().filter_map(row) {
        if !pages.contains_key(file) {
            findings.push(format!("{FOLDER}/README.md lists {file}, which is no page"));
        }
        if listed.insert(file, head).is_some() {
            findings.push(format!("{FOLDER}/README.md lists {file} twice"));
        }
    }
    for (file, text) in pages {
        let head = match head(file, text, pages) {
            Ok(head) => head,
            Err(reason) => {
                findings.push(format!("{FOLDER}/{file}: {reason}"));
                continue;
            }
        };
        match listed.get(file.as_str()) {
            None => findings.push(format!("{FOLDER}/README.md does not list {file}")),
            Some(row) if *row != head => findings.push(format!(
                "{FOLDER}/README.md lists {file} as {row:?}, and the page begins with {head:?}"
            )),
            Some(_) => {}
        }
    }
    findings
}

/// Reads `# NNNN: title`, an empty line and `Status: …`.
fn head(file: &str, text: &str, pages: &BTreeMap<String, String>) -> Result<Head, String> {
    let mut lines = text.lines();
    let number = file.get(..4).unwrap_or_default();
    let title = lines
        .next()
        .and_then(|line| line.strip_prefix(&format!("# {number}: ")))
        .ok_or_else(|| format!("the first line is not \"# {number}: title\""))?;
    let status = lines
        .nth(1)
        .and_then(|line| line.strip_prefix("Status: "))
        .ok_or("the third line is not \"Status: …\"")?;
    let other = ["accepted, amended by ", "replaced by "].iter().find_map(|words| status.strip_prefix(words));
    match other {
        None if status == "accepted" => {}
        None => {
            return Err(format!(
                "the status is {status:?}: write \"accepted\", \"accepted, amended by [NNNN](…)\" or \"replaced by [NNNN](…)\""
            ));
        }
        Some(links) => {
            for link in links.split(" and ") {
                if !target(link).is_some_and(|target| pages.contains_key(target)) {
                    return Err(format!("the status refers to {link}, which is no link to a page"));
                }
            }
        }
    }
    Ok(Head { title: title.to_owned(), status: status.to_owned() })
}

/// Reads a row of the index: `| [NNNN](file) | title | status |`.
fn row(line: &str) -> Option<(&str, Head)> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let file = target(cells.next()?)?;
    let title = cells.next()?.to_owned();
    let status = cells.next()?.to_owned();
    Some((file, Head { title, status }))
}

/// The target of `[NNNN](target)`, where the target begins with the same number.
fn target(link: &str) -> Option<&str> {
    let (number, target) = link.strip_prefix('[')?.strip_suffix(')')?.split_once("](")?;
    target.starts_with(number).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "# Decisions\n\n| Page | Decision | Status |\n|---|---|---|\n| [0001](0001-a.md) | A | accepted |\n| [0002](0002-b.md) | B | accepted, amended by [0001](0001-a.md) |\n";

    fn pages() -> BTreeMap<String, String> {
        BTreeMap::from([
            ("0001-a.md".to_owned(), "# 0001: A\n\nStatus: accepted\n\nText.\n".to_owned()),
            (
                "0002-b.md".to_owned(),
                "# 0002: B\n\nStatus: accepted, amended by [0001](0001-a.md)\n\nText.\n".to_owned(),
            ),
        ])
    }

    /// The only finding about the pages after `from` became `to` in the file.
    fn finding(file: &str, from: &str, to: &str) -> String {
        let mut pages = pages();
        let text = pages.get_mut(file).unwrap();
        assert!(text.contains(from));
        *text = text.replace(from, to);
        let findings = compare(&pages, INDEX);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings[0].clone()
    }

    #[test]
    fn pages_that_the_index_lists_as_they_are_pass() {
        assert_eq!(compare(&pages(), INDEX), Vec::<String>::new());
    }

    #[test]
    fn the_index_lists_every_page_and_no_other() {
        let mut more = pages();
        more.insert("0003-c.md".to_owned(), "# 0003: C\n\nStatus: accepted\n".to_owned());
        assert_eq!(compare(&more, INDEX), ["docs/decisions/README.md does not list 0003-c.md"]);
        let mut fewer = pages();
        fewer.remove("0002-b.md");
        assert_eq!(compare(&fewer, INDEX), ["docs/decisions/README.md lists 0002-b.md, which is no page"]);
        let twice = format!("{INDEX}| [0001](0001-a.md) | A | accepted |\n");
        assert_eq!(compare(&pages(), &twice), ["docs/decisions/README.md lists 0001-a.md twice"]);
    }

    #[test]
    fn a_page_has_a_title_and_a_status_that_the_index_repeats() {
        assert!(finding("0001-a.md", "# 0001: A", "# A").contains("the first line is not \"# 0001: title\""));
        assert!(finding("0001-a.md", "Status: accepted", "Text.").contains("the third line"));
        assert!(finding("0001-a.md", "accepted", "liked").contains("the status is \"liked\""));
        assert!(finding("0001-a.md", ": A", ": Other").contains("lists 0001-a.md as"));
        let lost = finding("0002-b.md", "0001-a.md", "0009-z.md");
        assert!(lost.contains("refers to [0001](0009-z.md)"), "{lost}");
    }
}
