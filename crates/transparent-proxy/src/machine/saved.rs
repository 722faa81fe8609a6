//! Output of `iptables-save`, and the changes it needs.

use std::fmt::Write as _;

use crate::rules::{CHAINS, COMMENTS};

/// The state of the firewall of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    tables: Vec<SavedTable>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SavedTable {
    name: String,
    /// `:NAME POLICY [packets:bytes]`
    chains: Vec<String>,
    /// `[packets:bytes] -A CHAIN …`, with counters when they were asked for.
    rules: Vec<String>,
}

impl SavedTable {
    fn chain_names(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().filter_map(|line| line.strip_prefix(':')?.split(' ').next())
    }

    fn own_chains(&self) -> impl Iterator<Item = &str> {
        self.chain_names().filter(|name| name.starts_with(CHAINS))
    }

    /// True for a table with nothing but builtin chains that let everything through.
    fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.chains.iter().all(|line| line.split(' ').nth(1) == Some("ACCEPT"))
    }
}

impl Saved {
    pub fn parse(text: &str) -> Saved {
        let mut tables: Vec<SavedTable> = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('*') {
                tables.push(SavedTable { name: name.trim().into(), chains: Vec::new(), rules: Vec::new() });
            } else if let Some(table) = tables.last_mut() {
                if line.starts_with(':') {
                    table.chains.push(line.into());
                } else if line.starts_with('-') || line.starts_with('[') {
                    table.rules.push(line.into());
                }
            }
        }
        Saved { tables }
    }

    fn table(&self, name: &str) -> Option<&SavedTable> {
        self.tables.iter().find(|table| table.name == name)
    }

    pub fn has_chain(&self, table: &str, chain: &str) -> bool {
        self.table(table).is_some_and(|table| table.chain_names().any(|name| name == chain))
    }

    pub fn has_rules(&self) -> bool {
        self.tables.iter().any(|table| !table.is_empty())
    }

    /// Batch for `iptables-restore --noflush` that removes our rules and chains and adds the given lines to
    /// their tables. Each table changes at once. `None` when our rules cannot be distinguished from others.
    pub fn replacing(&self, mut added: Vec<(&'static str, Vec<String>)>) -> Option<String> {
        let is_commented =
            self.tables.iter().flat_map(|table| &table.rules).any(|rule| rule.contains(COMMENTS));
        let has_chains = self.tables.iter().any(|table| table.own_chains().next().is_some());
        if has_chains && !is_commented {
            return None;
        }
        let mut batch = String::new();
        for table in &self.tables {
            let removed = removal(table);
            let position = added.iter().position(|(name, _)| *name == table.name);
            let added = position.map(|position| added.remove(position).1).unwrap_or_default();
            write_table(&mut batch, &table.name, removed.iter().chain(&added));
        }
        for (name, lines) in &added {
            write_table(&mut batch, name, lines.iter());
        }
        Some(batch)
    }

    /// Batch for `iptables-restore --counters` that restores these tables as they were.
    pub fn text(&self, tables: &[&str]) -> String {
        let mut text = String::new();
        for table in self.tables.iter().filter(|table| tables.contains(&table.name.as_str())) {
            write_table(&mut text, &table.name, table.chains.iter().chain(&table.rules));
        }
        text
    }

    /// The names of tables that differ from those of another state, counters aside.
    pub fn different<'a>(&'a self, other: &'a Saved) -> Vec<&'a str> {
        let plain = |table: &SavedTable| {
            let chains = table.chains.iter().map(|line| line.split(" [").next().unwrap_or(line).to_owned());
            let rules = table.rules.iter().map(|line| uncounted(line).to_owned());
            (chains.collect::<Vec<_>>(), rules.collect::<Vec<_>>())
        };
        let names = self.tables.iter().chain(&other.tables).map(|table| table.name.as_str());
        let mut found: Vec<&str> = Vec::new();
        for name in names {
            if self.table(name).map(plain) != other.table(name).map(plain) && !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }

    /// Tables without any effect that have none of our rules here but had some in `before`, or were not
    /// there: name and builtin chains.
    pub fn left_empty<'a>(&'a self, before: &Saved) -> Vec<(&'a str, Vec<&'a str>)> {
        let was_ours = |name: &str| before.table(name).is_none_or(|table| !removal(table).is_empty());
        self.tables
            .iter()
            .filter(|table| table.is_empty() && was_ours(&table.name))
            .map(|table| (table.name.as_str(), table.chain_names().collect()))
            .collect()
    }

    /// True if the table exists at all.
    pub fn has_table(&self, name: &str) -> bool {
        self.table(name).is_some()
    }
}

/// A rule without its counters.
fn uncounted(rule: &str) -> &str {
    if rule.starts_with('[') { rule.split_once("] ").map_or(rule, |(_, rule)| rule) } else { rule }
}

/// Lines that remove everything of ours from a table: rules by their content, then our chains.
fn removal(table: &SavedTable) -> Vec<String> {
    let mut lines = Vec::new();
    for rule in table.rules.iter().map(|rule| uncounted(rule)) {
        let Some(rest) = rule.strip_prefix("-A ") else { continue };
        let in_own_chain = rest.starts_with(CHAINS);
        let jumps = rest.contains(&format!(" -j {CHAINS}")) || rest.contains(&format!(" -g {CHAINS}"));
        if !in_own_chain && (jumps || rest.contains(COMMENTS)) {
            lines.push(format!("-D {rest}"));
        }
    }
    lines.extend(table.own_chains().map(|chain| format!("-F {chain}")));
    lines.extend(table.own_chains().map(|chain| format!("-X {chain}")));
    lines
}

fn write_table<'a>(text: &mut String, name: &str, lines: impl Iterator<Item = &'a String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "*{name}");
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    text.push_str("COMMIT\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = "# Generated by iptables-save\n*nat\n:PREROUTING ACCEPT [1:2]\n:OUTPUT ACCEPT [0:0]\n\
        :DOCKER_OUTPUT - [0:0]\n:KUMA_MESH_INBOUND - [0:0]\n:KUMA_MESH_INBOUND_REDIRECT - [0:0]\n\
        [3:4] -A PREROUTING -p tcp -m comment --comment \"kuma/mesh/transparent/proxy/x\" -j KUMA_MESH_INBOUND\n\
        [5:6] -A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT\n\
        [5:6] -A KUMA_MESH_INBOUND -p tcp -m comment --comment \"kuma/mesh/transparent/proxy/y\" -j KUMA_MESH_INBOUND_REDIRECT\n\
        COMMIT\n*filter\n:INPUT DROP [0:0]\nCOMMIT\n";

    #[test]
    fn only_what_is_ours_is_removed_and_each_table_changes_at_once() {
        let saved = Saved::parse(SAVED);
        assert!(saved.has_chain("nat", "DOCKER_OUTPUT") && !saved.has_chain("raw", "DOCKER_OUTPUT"));
        let removed = "*nat\n\
            -D PREROUTING -p tcp -m comment --comment \"kuma/mesh/transparent/proxy/x\" -j KUMA_MESH_INBOUND\n\
            -F KUMA_MESH_INBOUND\n-F KUMA_MESH_INBOUND_REDIRECT\n\
            -X KUMA_MESH_INBOUND\n-X KUMA_MESH_INBOUND_REDIRECT\n";
        assert_eq!(saved.replacing(Vec::new()).unwrap(), format!("{removed}COMMIT\n"));
        let added =
            vec![("raw", vec!["-A OUTPUT -j A".to_owned()]), ("nat", vec!["-A OUTPUT -j B".to_owned()])];
        assert_eq!(
            saved.replacing(added).unwrap(),
            format!("{removed}-A OUTPUT -j B\nCOMMIT\n*raw\n-A OUTPUT -j A\nCOMMIT\n")
        );
    }

    #[test]
    fn rules_without_comments_are_not_guessed() {
        let saved =
            Saved::parse("*nat\n:KUMA_MESH_INBOUND - [0:0]\n-A PREROUTING -j KUMA_MESH_INBOUND\nCOMMIT\n");
        assert_eq!(saved.replacing(Vec::new()), None);
        assert_eq!(Saved::parse("").replacing(Vec::new()).as_deref(), Some(""));
    }

    #[test]
    fn counters_make_no_difference() {
        let counted = Saved::parse(SAVED);
        let other = Saved::parse(&SAVED.replace("[5:6] ", "").replace("[1:2]", "[9:9]"));
        assert!(counted.different(&other).is_empty());
        assert_eq!(counted.different(&Saved::parse("")), ["nat", "filter"]);
        assert_eq!(Saved::parse("").different(&counted), ["nat", "filter"]);
    }
}
