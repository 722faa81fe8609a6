//! Crates that a pure crate reaches through any path: what does input and output must not be among them.

use super::layers::Table;

/// Packages that have a clock, chance, files or a network in them.
const IMPURE: &[&str] = &[
    "axum",
    "deadpool-postgres",
    "getrandom",
    "hyper",
    "mio",
    "nix",
    "rand",
    "reqwest",
    "rusqlite",
    "rustls",
    "socket2",
    "tokio-postgres",
    "tonic",
    "ureq",
    "uuid",
];

/// Features of tokio that are channels and timers. All others start threads, or read and write.
const HARMLESS_TOKIO: &[&str] = &["sync", "time", "tokio-macros", "macros"];

/// Packages that are not looked into, with the reason.
const UNCALLED: &[(&str, &str)] =
    &[("envoy-types", "its messages come with generated gRPC clients, which nothing calls")];

/// Groups of the table that no pure crate may reach.
const OUTSIDE: &[&str] = &["apps", "edges", "tests"];

/// Format of `cargo tree` that [`violations`] reads.
pub const FORMAT: &str = "{p}|{f}";

/// One line of `cargo tree --prefix depth`.
struct Entry<'t> {
    depth: usize,
    name: &'t str,
    features: Vec<&'t str>,
}

impl<'t> Entry<'t> {
    fn read(line: &'t str) -> Option<Entry<'t>> {
        let name_at = line.find(|c: char| !c.is_ascii_digit())?;
        let depth = line[..name_at].parse().ok()?;
        let (package, features) = line[name_at..].rsplit_once('|')?;
        let features = features.trim_end_matches(" (*)").split(',').filter(|feature| !feature.is_empty());
        Some(Entry { depth, name: package.split(' ').next()?, features: features.collect() })
    }

    /// The harm in reaching this package, as one names it.
    fn harm(&self, table: &Table) -> Option<String> {
        if table.get(self.name).is_some_and(|layer| OUTSIDE.contains(&layer.group.as_str())) {
            return Some(self.name.to_owned());
        }
        if self.name == "tokio" {
            let harmful: Vec<&str> =
                self.features.iter().filter(|feature| !HARMLESS_TOKIO.contains(feature)).copied().collect();
            return (!harmful.is_empty()).then(|| format!("tokio with {}", harmful.join(", ")));
        }
        IMPURE.contains(&self.name).then(|| self.name.to_owned())
    }
}

/// Reads the tree of a pure crate and names what it must not reach, each once, with a path that leads there.
pub fn violations(tree: &str, table: &Table) -> Vec<String> {
    let mut path: Vec<&str> = Vec::new();
    let mut passed: Option<usize> = None;
    let mut found: Vec<(String, String)> = Vec::new();
    for entry in tree.lines().filter_map(Entry::read) {
        path.truncate(entry.depth);
        path.push(entry.name);
        // Below a package that is not looked into, or that is named already.
        if passed.is_some_and(|depth| entry.depth > depth) {
            continue;
        }
        passed = None;
        if entry.depth == 0 {
            continue;
        }
        if UNCALLED.iter().any(|(name, _)| *name == entry.name) {
            passed = Some(entry.depth);
            continue;
        }
        let Some(harm) = entry.harm(table) else { continue };
        passed = Some(entry.depth);
        if !found.iter().any(|(known, _)| *known == harm) {
            let root = path.first().copied().unwrap_or_default();
            let text = format!("{root} is pure and reaches {harm}: {}", path.join(" → "));
            found.push((harm, text));
        }
    }
    found.into_iter().map(|(_, text)| text).collect()
}

#[cfg(test)]
mod tests {
    use super::super::layers;
    use super::*;

    const PAGE: &str =
        "# A\n\n## Layers\n\n```\nedges   api → nothing\npure    kds → store\n        store → nothing\n```\n";

    fn found(tree: &str) -> Vec<String> {
        violations(tree, &layers::table(PAGE).unwrap())
    }

    #[test]
    fn what_a_pure_crate_reaches_through_another_is_named_with_its_path() {
        let tree = "0kds v0.1.0 (/x)|\n1serde v1.0.0|default\n1store v0.1.0 (/y)|\n2rusqlite v0.41.0|bundled\n\
                    3libsqlite3-sys v0.1.0|\n2tokio v1.54.1|fs,net,sync,time\n3mio v1.0.0|\n1rusqlite v0.41.0| (*)\n";
        assert_eq!(
            found(tree),
            [
                "kds is pure and reaches rusqlite: kds → store → rusqlite",
                "kds is pure and reaches tokio with fs, net: kds → store → tokio",
            ]
        );
        let edge = "0kds v0.1.0 (/x)|\n1store v0.1.0 (/y)|\n2api v0.1.0 (/z)|\n";
        assert_eq!(found(edge), ["kds is pure and reaches api: kds → store → api"]);
    }

    #[test]
    fn channels_and_messages_that_come_with_clients_are_harmless() {
        assert!(found("0kds v0.1.0 (/x)|\n1store v0.1.0 (/y)|\n2tokio v1.54.1|sync,time (*)\n").is_empty());
        let envoy = "0envoy v0.1.0 (/x)|\n1envoy-types v0.7.7|\n2tonic v0.14.9|transport\n3tokio v1.54.1|net\n1bytes v1|\n";
        assert!(found(envoy).is_empty());
        let beside = format!("{envoy}1hyper v1|\n");
        assert_eq!(found(&beside), ["envoy is pure and reaches hyper: envoy → hyper"]);
    }
}
