//! Prometheus' text form, read and written: families with their samples.
//!
//! What is written is version 0.0.4. Answers in OpenMetrics are read too: their counters carry `_total`
//! in the family's name here, and what 0.0.4 cannot say (exemplars, creation times) is left out.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
};

/// The content type of what [`Families::render`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const UNTYPED: &str = "untyped";

/// All samples of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Family {
    pub name: String,
    pub kind: Option<String>,
    pub help: Option<String>,
    pub samples: Vec<Sample>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// End of the sample's name, after the family's: `_bucket`, `_sum`, `_count` or nothing.
    pub suffix: String,
    /// Values as they were written, escapes included.
    pub labels: Vec<(String, String)>,
    /// With a timestamp, if there was one.
    pub value: String,
}

impl Sample {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    pub fn set_label(&mut self, name: &str, value: &str) {
        match self.labels.iter_mut().find(|(label, _)| label == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.labels.push((name.to_owned(), value.to_owned())),
        }
    }
}

/// Families in the order they were first seen, each once.
#[derive(Debug, Default)]
pub struct Families {
    list: Vec<Family>,
    index: HashMap<String, usize>,
}

impl Families {
    /// Reads a text; lines that make no sense are left out, the others count.
    pub fn parse(text: &str) -> Families {
        let open_metrics = text.trim_end().ends_with("# EOF");
        let mut families = Families::default();
        let mut current = None;
        for line in text.lines().map(str::trim) {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                current = Some(families.place(name));
                families.at(name).kind = Some(kind.trim().to_owned());
            } else if let Some((name, help)) =
                line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
            {
                current = Some(families.place(name));
                families.at(name).help = Some(help.to_owned());
            } else if !line.starts_with('#') {
                families.read_sample(line, current, open_metrics);
            }
        }
        if open_metrics { families.into_plain_text() } else { families }
    }

    fn read_sample(&mut self, line: &str, current: Option<usize>, open_metrics: bool) {
        let Some((name, labels, mut value)) = split_sample(line) else { return };
        if open_metrics {
            value = value.split_whitespace().next().unwrap_or_default();
        }
        let family = current.and_then(|place| self.list.get_mut(place)).and_then(|family| {
            let suffix = name.strip_prefix(family.name.as_str())?.to_owned();
            (suffix.is_empty() || belongs(family.kind.as_deref(), &suffix)).then_some((family, suffix))
        });
        let (family, suffix) = match family {
            Some(found) => found,
            None => (self.at(name), String::new()),
        };
        family.samples.push(Sample { suffix, labels, value: value.to_owned() });
    }

    pub fn into_families(self) -> impl Iterator<Item = Family> {
        self.list.into_iter()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Family> {
        self.list.iter()
    }

    pub fn samples(&mut self) -> impl Iterator<Item = &mut Sample> {
        self.list.iter_mut().flat_map(|family| &mut family.samples)
    }

    /// The family of this name, made if there is none.
    pub fn at(&mut self, name: &str) -> &mut Family {
        let place = self.place(name);
        &mut self.list[place]
    }

    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.index.get(name) {
            return *place;
        }
        self.index.insert(name.to_owned(), self.list.len());
        self.list.push(Family { name: name.to_owned(), ..Family::default() });
        self.list.len() - 1
    }

    /// Adds a family. When two do not agree on what they count, both stay and neither is trusted.
    pub fn add(&mut self, family: Family) {
        let known = self.at(&family.name);
        match (&known.kind, &family.kind) {
            (Some(known_kind), Some(kind)) if known_kind != kind => known.kind = Some(UNTYPED.to_owned()),
            (None, Some(_)) if known.samples.is_empty() => known.kind = family.kind,
            (Some(_), None) if !family.samples.is_empty() => known.kind = Some(UNTYPED.to_owned()),
            _ => {}
        }
        if known.help.is_none() {
            known.help = family.help;
        }
        known.samples.extend(family.samples);
    }

    fn into_plain_text(self) -> Families {
        let mut plain = Families::default();
        for mut family in self.list {
            family.samples.retain(|sample| sample.suffix != "_created");
            let (kind, suffix) = match family.kind.as_deref() {
                Some("counter") => ("counter", "_total"),
                Some("info") => ("gauge", "_info"),
                Some("stateset") => ("gauge", ""),
                Some(kind @ ("gauge" | "histogram" | "summary")) => (kind, ""),
                _ => (UNTYPED, ""),
            };
            let kind = kind.to_owned();
            if !suffix.is_empty() && !family.name.ends_with(suffix) {
                family.name.push_str(suffix);
                family.samples.iter_mut().for_each(|sample| sample.suffix.clear());
            }
            family.kind = Some(kind);
            plain.add(family);
        }
        plain
    }

    /// Writes every family once, its samples together; of equal series only the first.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for family in self.list.iter().filter(|family| !family.samples.is_empty()) {
            if let Some(help) = &family.help {
                let _ = writeln!(text, "# HELP {} {help}", family.name);
            }
            if let Some(kind) = &family.kind {
                let _ = writeln!(text, "# TYPE {} {kind}", family.name);
            }
            let mut seen = HashSet::new();
            for sample in &family.samples {
                let mut labels: Vec<_> = sample.labels.iter().collect();
                labels.sort();
                if seen.insert((&sample.suffix, labels)) {
                    write_sample(&mut text, &family.name, sample);
                }
            }
        }
        text
    }
}

fn write_sample(text: &mut String, family: &str, sample: &Sample) {
    text.push_str(family);
    text.push_str(&sample.suffix);
    for (place, (name, value)) in sample.labels.iter().enumerate() {
        let _ = write!(text, "{}{name}=\"{value}\"", if place == 0 { '{' } else { ',' });
    }
    if !sample.labels.is_empty() {
        text.push('}');
    }
    let _ = writeln!(text, " {}", sample.value);
}

fn belongs(kind: Option<&str>, suffix: &str) -> bool {
    match kind {
        Some("histogram") => matches!(suffix, "_bucket" | "_sum" | "_count" | "_created"),
        Some("gaugehistogram") => matches!(suffix, "_bucket" | "_gsum" | "_gcount"),
        Some("summary") => matches!(suffix, "_sum" | "_count" | "_created"),
        Some("counter") => matches!(suffix, "_total" | "_created"),
        Some("info") => suffix == "_info",
        _ => false,
    }
}

type Labels = Vec<(String, String)>;

/// Name, labels, and value with what follows it.
fn split_sample(line: &str) -> Option<(&str, Labels, &str)> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let (labels, value) = match rest.strip_prefix('{') {
        Some(inside) => split_labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value = value.trim();
    (!name.is_empty() && !value.is_empty()).then_some((name, labels, value))
}

/// Labels and what follows the closing brace.
fn split_labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, quoted) = rest.split_once('=')?;
        let value = quoted.trim_start().strip_prefix('"')?;
        let mut escaped = false;
        let end = value.find(|c| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        })?;
        labels.push((name.trim().to_owned(), value[..end].to_owned()));
        rest = &value[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(Families::parse(text).render(), expect, "{text}");
    }

    #[test]
    fn plain_text_is_written_as_it_was_read_with_families_together() {
        check(
            "# TYPE b counter\nb{} 1\na{x=\"{a=\\\"b\\\",c\"} 2 1700000000000\nb{c=\"d\"} 3\n",
            "# TYPE b counter\nb 1\nb{c=\"d\"} 3\na{x=\"{a=\\\"b\\\",c\"} 2 1700000000000\n",
        );
        let histogram =
            "# HELP h How long\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 2\nh_count 1\n";
        check(histogram, histogram);
        check("what\n{x=\"y\"} 1\na{x=} 1\na{x=\"y} 1\na\nb 1\n", "b 1\n");
        check("a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 2\n", "a{x=\"1\",y=\"2\"} 1\n");
    }

    #[test]
    fn open_metrics_becomes_plain_text() {
        check(
            "# HELP a Things\n# TYPE a counter\n# UNIT a things\na_total{x=\"y\"} 1 1.5 # {id=\"z\"} 1\na_created 1\n# TYPE b info\nb_info{v=\"1\"} 1\n# TYPE c unknown\nc 1\n# EOF\n",
            "# HELP a_total Things\n# TYPE a_total counter\na_total{x=\"y\"} 1\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n# TYPE c untyped\nc 1\n",
        );
    }
}
