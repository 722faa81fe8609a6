//! The queries of `docs/guide/naming-migration.md` find what they say, with names of either scheme.

use std::{collections::BTreeMap, fs, path::Path};

use envoy::{Encoder, bootstrap::ClusterNames, json};
use plan::{Meaning, ProxyTraits, Role, meanings};
use regex::Regex;
use xds::Type;

use crate::{
    naming_reference::{DESTINATIONS, PROXY},
    support::{SECURED, plan, traits, unified},
};

/// The queries of the guide, in their order.
fn queries() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/naming-migration.md");
    let text = fs::read_to_string(path).unwrap();
    let blocks = text.split("```promql\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// The names clusters have in statistics, and what they stand for.
fn clusters(traits: &ProxyTraits, names: ClusterNames) -> BTreeMap<String, Meaning> {
    let plan = plan(&[SECURED, DESTINATIONS, PROXY], traits);
    let known = meanings(&plan, &"kri_dp_default_east__web_".parse().unwrap());
    let target = Encoder::default().lower(&plan);
    let shown = target.of(Type::Cluster).values().map(|encoded| {
        let cluster = json::to_json(Type::Cluster.url(), &encoded.body()).unwrap();
        let name = cluster["altStatName"].as_str().or(cluster["name"].as_str()).unwrap();
        (name.to_owned(), known[name].clone())
    });
    let own = [names.control_plane, names.access_log];
    let own = own.map(|name| (name.to_owned(), Meaning { kri: None, role: Role::System }));
    shown.chain(own).collect()
}

/// The names a query selects, as Prometheus does: the whole value must match.
fn selected<'a>(query: &str, clusters: &'a BTreeMap<String, Meaning>) -> Vec<&'a str> {
    let matcher = Regex::new(r#"envoy_cluster_name(=~|!~)"([^"]*)""#).unwrap();
    let matchers: Vec<(bool, Regex)> = matcher
        .captures_iter(query)
        .map(|found| (&found[1] == "=~", Regex::new(&format!("^(?:{})$", &found[2])).unwrap()))
        .collect();
    assert!(!matchers.is_empty(), "{query}");
    let fits = |name: &&str| matchers.iter().all(|(wanted, regex)| regex.is_match(name) == *wanted);
    clusters.keys().map(String::as_str).filter(fits).collect()
}

#[test]
fn every_query_of_the_migration_guide_finds_what_it_says() {
    let queries = queries();
    let [inbounds, services, passthrough, all, names] = queries.as_slice() else {
        panic!("the guide has other queries than this test: {queries:?}")
    };
    for clusters in
        [clusters(&traits("web"), ClusterNames::LEGACY), clusters(&unified("web"), ClusterNames::UNIFIED)]
    {
        let check = |query: &str, is_meant: fn(&str, &Meaning) -> bool| {
            let meant: Vec<&str> = clusters
                .iter()
                .filter(|(name, meaning)| is_meant(name, meaning))
                .map(|(name, _)| &**name)
                .collect();
            assert!(!meant.is_empty());
            assert_eq!(selected(query, &clusters), meant, "{query}");
        };
        check(inbounds, |_, meaning| meaning.role == Role::Inbound);
        check(services, |_, meaning| meaning.role == Role::Outbound && meaning.kri.is_some());
        check(passthrough, |name, meaning| meaning.role == Role::Passthrough && name.contains("outbound"));
        check(all, |_, meaning| meaning.role != Role::System);
    }
    let pattern = names.rsplit('"').nth(1).unwrap();
    let replaced = Regex::new(&format!("^(?:{pattern})$")).unwrap();
    assert_eq!(&replaced.captures("kri_msvc_default_east__backend_http").unwrap()[1], "backend");
}
