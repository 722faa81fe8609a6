//! Names of tests: facts in words, short enough for one line of output.

use std::collections::BTreeMap;

use super::prose::crate_of;

const LONGEST: usize = 70;

/// Collects long names of tests by crate, each with its file.
#[derive(Debug, Default)]
pub struct LongNames(BTreeMap<String, Vec<String>>);

impl LongNames {
    /// Adds the tests of a source file.
    pub fn add(&mut self, name: &str, text: &str) {
        for test in tests(text).filter(|test| test.len() > LONGEST) {
            self.0.entry(crate_of(name)).or_default().push(format!("{name}: {test}"));
        }
    }

    pub fn findings(&self) -> Vec<String> {
        let too_many = |(name, long): (&String, &Vec<String>)| {
            format!(
                "{name}: {} names of tests have more than {LONGEST} characters: {}",
                long.len(),
                long.join(", ")
            )
        };
        self.0.iter().map(too_many).collect()
    }
}

/// Names of the functions under `#[test]`, `#[tokio::test]` and the like.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        let name = function.and_then(|rest| rest.split(['(', '<']).next())?;
        std::mem::take(&mut is_test).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_named(name: &str) -> String {
        format!("#[test]\nfn {name}() {{}}\n")
    }

    #[test]
    fn tests_are_the_functions_under_their_attribute() {
        let text = "#[test]\nfn one() {\n    fn inner() {}\n}\n\n#[tokio::test(start_paused = true)]\n\
                    #[cfg(unix)]\nasync fn two() {}\n\nfn three<T>() {}\n";
        assert_eq!(tests(text).collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn a_name_has_at_most_seventy_characters() {
        let mut names = LongNames::default();
        names.add("crates/a/src/lib.rs", &test_named(&"n".repeat(70)));
        names.add("crates/a/src/lib.rs", &format!("fn {}() {{}}\n", "helper_".repeat(20)));
        assert_eq!(names.findings(), Vec::<String>::new());
        names.add("crates/a/tests/it/b.rs", &test_named(&"n".repeat(71)));
        let findings = names.findings();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("crates/a/tests/it/b.rs: nnn"), "{findings:?}");
    }
}
