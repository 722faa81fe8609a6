//! Targets of one Dataplane, in the words of both ways of discovery.
//!
//! A Dataplane is written by a peer, so its tags become labels only under names that mean nothing else: those that say
//! whose a series is, those that Prometheus itself gives meaning to, and those of histograms are not theirs.

use std::{collections::BTreeMap, sync::Arc};

use contract::monitoring::{MonitoringAssignment, MonitoringTarget, TargetGroup};
use plan::metrics::{ScrapeLabels, ScrapePage, sanitized, scrape_pages};
use resources::Resource;
use topology::MeshSnapshot;

/// Names of labels that no tag becomes. Relabelling copies labels of discovery to series (`labelmap`), so one that were
/// called `mesh` there would be the mesh of the series.
const RESERVED: [&str; 10] = [
    "mesh",
    "zone",
    "dataplane",
    "service",
    "kuma_workload",
    "kuma_proxy_role",
    "instance",
    "job",
    "le",
    "quantile",
];

/// Beginning of names that Prometheus keeps for itself, such as `__address__`.
const INTERNAL: &str = "__";
/// Beginning of the labels that `kuma_sd` makes, of which a series keeps none without relabelling.
const META: &str = "__meta_kuma_";
/// Those that it makes beside the labels of an assignment.
const OWN_META: [&str; 3] = ["mesh", "dataplane", "service"];

/// Largest number of labels that tags of a proxy become, and the longest name and value of one in bytes.
const MOST_LABELS: usize = 64;
const LONGEST_NAME: usize = 128;
const LONGEST_VALUE: usize = 1024;

/// A page of metrics, written for both ways of discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedTarget {
    /// The client that it is for; `None` for any.
    pub client: Option<String>,
    /// JSON of a [`MonitoringAssignment`].
    pub assignment: Box<str>,
    /// JSON of a [`TargetGroup`].
    pub group: Box<str>,
}

/// The targets of a Dataplane.
pub fn of_dataplane(mesh: &MeshSnapshot, dataplane: &Resource) -> Arc<[RenderedTarget]> {
    let pages = scrape_pages(mesh, dataplane);
    if pages.is_empty() {
        return Arc::default();
    }
    let name = dataplane.display_name();
    let about = ScrapeLabels::of(dataplane, name);
    let user = user_labels(&about);
    let known = known_labels(mesh, name, &about);
    pages.into_iter().map(|page| of_page(page, &known, &user)).collect()
}

/// The labels that the control plane vouches for.
fn known_labels<'a>(
    mesh: &'a MeshSnapshot,
    name: &'a str,
    about: &ScrapeLabels<'a>,
) -> BTreeMap<&'static str, &'a str> {
    // A zone knows where it is; on global the label says it, which only the zone itself may write.
    let zone = Some(&*mesh.zone).filter(|zone| !zone.is_empty()).or(about.zone);
    let mut known = BTreeMap::from([
        ("mesh", &*mesh.name),
        ("dataplane", name),
        ("service", about.service),
        ("kuma_proxy_role", about.role),
    ]);
    known.extend(zone.map(|zone| ("zone", zone)));
    known.extend(about.workload.map(|workload| ("kuma_workload", workload)));
    known
}

/// Tags as Kuma's discovery has them: the first value under the name of the tag, all of them under its plural.
fn user_labels(about: &ScrapeLabels<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let singular = about.tags.iter().map(|(tag, values)| {
        let first = values.first().copied().unwrap_or_default();
        (label_name(tag), first.to_owned())
    });
    let plural = about.tags.iter().map(|(tag, values)| {
        let all: Vec<&str> = values.iter().copied().collect();
        (format!("{}s", label_name(tag)), format!(",{},", all.join(",")))
    });
    // Tags are sorted, so that of two that become one name always the same stays.
    for (name, value) in singular.chain(plural) {
        if labels.len() < MOST_LABELS && may_be_label(&name, &value) {
            labels.entry(name).or_insert(value);
        }
    }
    labels
}

/// The tag's name in the letters of a label, which begins with no digit.
fn label_name(tag: &str) -> String {
    let name = sanitized(tag);
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

fn may_be_label(name: &str, value: &str) -> bool {
    let is_reserved = RESERVED.contains(&name) || name.starts_with(INTERNAL);
    !name.is_empty() && !is_reserved && name.len() <= LONGEST_NAME && value.len() <= LONGEST_VALUE
}

/// The target of a page, with labels that the control plane vouches for and those of tags.
pub fn of_page(
    page: ScrapePage,
    known: &BTreeMap<&'static str, &str>,
    user: &BTreeMap<String, String>,
) -> RenderedTarget {
    let scheme = if page.secure { "https" } else { "http" };
    let address = page.address.to_string();
    let text = |name: &str| known.get(name).copied().unwrap_or_default().to_owned();
    let mut labels = user.clone();
    labels.extend(known.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let target = MonitoringTarget {
        name: text("dataplane"),
        scheme: scheme.to_owned(),
        address: address.clone(),
        metrics_path: page.path.clone(),
        labels: BTreeMap::new(),
    };
    let assignment = MonitoringAssignment::new(text("mesh"), text("service"), vec![target], labels.clone());
    let mut of_group: BTreeMap<String, String> =
        labels.into_iter().map(|(name, value)| (format!("{META}label_{name}"), value)).collect();
    for (name, value) in known {
        of_group.insert((*name).to_owned(), (*value).to_owned());
        if OWN_META.contains(name) {
            of_group.insert(format!("{META}{name}"), (*value).to_owned());
        }
    }
    of_group.insert("__scheme__".to_owned(), scheme.to_owned());
    of_group.insert("__metrics_path__".to_owned(), page.path);
    let group = TargetGroup { targets: vec![address], labels: of_group };
    RenderedTarget { client: page.client, assignment: json(&assignment), group: json(&group) }
}

fn json(value: &impl serde::Serialize) -> Box<str> {
    // Text under string keys: writing it cannot fail.
    serde_json::to_string(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn labels_of(tags: &[(&str, &[&str])]) -> BTreeMap<String, String> {
        let tags = tags.iter().map(|(tag, values)| (*tag, values.iter().copied().collect::<BTreeSet<_>>()));
        user_labels(&ScrapeLabels {
            zone: None,
            role: "sidecar",
            labelled_workload: None,
            service: "web",
            workload: Some("web"),
            tags: tags.collect(),
        })
    }

    #[test]
    fn tags_become_labels_as_in_kuma() {
        let labels = labels_of(&[("kuma.io/service", &["admin", "web"]), ("5xx-rate", &["é\"\n"])]);
        let pairs: Vec<(&str, &str)> =
            labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("_5xx_rate", "é\"\n"),
                ("_5xx_rates", ",é\"\n,"),
                ("kuma_io_service", "admin"),
                ("kuma_io_services", ",admin,web,"),
            ]
        );
    }

    #[test]
    fn no_tag_takes_the_name_of_a_label_that_means_something() {
        let hostile = RESERVED.iter().map(|name| (*name, &["claimed"][..]));
        let internal = ["__address__", "--address--", "__meta_kuma_mesh", "kuma.workload", "kuma-proxy-role"];
        let hostile: Vec<_> = hostile.chain(internal.map(|name| (name, &["claimed"][..]))).collect();
        let labels = labels_of(&hostile);
        let known: Vec<&String> = labels
            .keys()
            .filter(|name| RESERVED.contains(&name.as_str()) || name.starts_with("__"))
            .collect();
        assert_eq!(known, Vec::<&String>::new());
    }

    #[test]
    fn of_tags_that_become_one_name_the_first_stays() {
        let labels = labels_of(&[("a-b", &["3"]), ("a.b", &["2"]), ("a_b", &["1"]), ("a_bs", &["own"])]);
        assert_eq!(labels["a_b"], "3");
        assert_eq!(labels["a_bs"], "own");
    }

    #[test]
    fn labels_of_one_proxy_are_bounded() {
        let names: Vec<String> = (0..1000).map(|number| format!("tag-{number:04}")).collect();
        let many: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &["x"][..])).collect();
        assert_eq!(labels_of(&many).len(), MOST_LABELS);
        let long = "x".repeat(LONGEST_VALUE + 1);
        assert_eq!(labels_of(&[("long", &[&long]), (&long, &["x"])]), BTreeMap::new());
    }
}
