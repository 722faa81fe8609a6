//! On which line each field of a text stands, found by its path.
//!
//! A text is read a second time for this, and only when there is a mistake to report.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// Lines of the fields in a text's documents.
#[derive(Debug, Default)]
pub struct Positions(Vec<Document>);

#[derive(Debug)]
struct Document {
    /// First line of the document, as in [`super::Document`].
    line: usize,
    root: Node,
}

/// A value of which only the places matter.
#[derive(Debug)]
enum Node {
    Scalar,
    List(Vec<(usize, Node)>),
    /// The line of a field is that of its key: a value may begin below it.
    Fields(Vec<(String, usize, Node)>),
}

impl Positions {
    /// The positions in a text that [`super::documents`] can read.
    pub fn of(text: &str) -> Positions {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let read = serde_saphyr::from_multiple_with_options::<Spanned<Node>>(text, super::options());
        let document = |found: Spanned<Node>| Document { line: line(&found.referenced), root: found.value };
        Positions(read.unwrap_or_default().into_iter().map(document).collect())
    }

    /// The line of a field in the document that starts on a line, and how much of the path was found. A field
    /// that is not there has the line of what should contain it.
    pub fn line(&self, document: usize, path: &str) -> (usize, usize) {
        let Some(found) = self.0.iter().find(|found| found.line == document) else { return (document, 0) };
        let mut node = &found.root;
        let mut line = document;
        let mut rest = path;
        while let Some((at, child, left)) = node.step(rest) {
            (node, line, rest) = (child, at, left);
        }
        (line, path.len() - rest.len())
    }
}

impl Node {
    /// Goes one step along a path such as `spec.to[0].tags["kuma.io/service"]`: the line there, what is there, and the
    /// rest of the path.
    fn step<'p>(&self, path: &'p str) -> Option<(usize, &Node, &'p str)> {
        let path = path.strip_prefix('.').unwrap_or(path);
        match self {
            Node::Scalar => None,
            Node::List(items) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                let (line, item) = items.get(index.parse::<usize>().ok()?)?;
                Some((*line, item, rest))
            }
            Node::Fields(fields) => {
                // Keys with dots are not always in quotes, so the longest key that fits is the one meant.
                let fitting = fields.iter().filter_map(|(key, line, value)| {
                    let quoted = || path.strip_prefix(format!("[{key:?}]").as_str());
                    let bare = || path.strip_prefix(key.as_str()).filter(|rest| ends_key(rest));
                    Some((*line, value, quoted().or_else(bare)?))
                });
                fitting.min_by_key(|(_, _, rest)| rest.len()).filter(|_| !path.is_empty())
            }
        }
    }
}

fn ends_key(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(['.', '['])
}

fn line(location: &serde_saphyr::Location) -> usize {
    usize::try_from(location.line()).unwrap_or_default()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Node::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Node>>()? {
            items.push((line(&item.referenced), item.value));
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            fields.push((key.value, line(&key.defined), map.next_value()?));
        }
        Ok(Node::Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::yaml;

    const TEXT: &str = "\
# a comment
type: MeshTimeout
labels:
  kuma.io/zone: east
spec:
  to:
  - targetRef:
      kind: Mesh
    default: {}
  -
    targetRef: {kind: MeshService,
      name: web}
---
{\"type\": \"Mesh\",
 \"mtls\": {
   \"backends\": [{\"name\": \"a\"},
     {\"name\": \"b\", \"n\": null, \"f\": 1.5, \"i\": -1, \"t\": true}]}}
";

    #[test]
    fn a_field_is_on_the_line_of_its_key_an_absent_one_on_its_owners() {
        let positions = Positions::of(TEXT);
        let starts: Vec<usize> = yaml::documents(TEXT).unwrap().iter().map(|found| found.line).collect();
        assert_eq!(starts, [2, 14]);
        let line = |document: usize, path: &str| positions.line(document, path).0;
        for (path, expect) in [
            ("type", 2),
            ("labels[\"kuma.io/zone\"]", 4),
            ("labels.kuma.io/zone", 4),
            ("spec.to", 6),
            ("spec.to[0].targetRef.kind", 8),
            ("spec.to[0].default", 9),
            ("spec.to[0].default.http", 9),
            ("spec.to[1].targetRef.name", 12),
            ("spec.to[7]", 6),
            ("spec.from", 5),
            ("name", 2),
            ("", 2),
        ] {
            assert_eq!(line(2, path), expect, "{path}");
        }
        for (path, expect) in
            [("mtls.backends[1].name", 17), ("mtls.backends[0]", 16), ("mtls.backends[1].n.x", 17)]
        {
            assert_eq!(line(14, path), expect, "{path}");
        }
        assert_eq!(line(99, "type"), 99);
        assert_eq!(positions.line(2, "spec.nothing").1, "spec".len());
    }

    proptest::proptest! {
        #[test]
        fn no_path_makes_it_panic(path in "[a-z0-9.\\[\\]\"/]{0,20}") {
            let _ = Positions::of(TEXT).line(2, &path);
        }
    }
}
