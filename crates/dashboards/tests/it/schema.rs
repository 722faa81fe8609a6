//! Rules that Grafana has for a dashboard, checked on the JSON that it reads.

use std::collections::BTreeSet;

use serde_json::Value;

/// Every dashboard, as parsed from its text.
pub fn parsed() -> Vec<Value> {
    dashboards::all().iter().map(|it| serde_json::from_str(&it.text()).unwrap()).collect()
}

fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn dashboards_have_addresses_of_their_own_that_grafana_accepts() {
    let all = parsed();
    let uids: BTreeSet<&str> = all.iter().map(|it| it["uid"].as_str().unwrap()).collect();
    let titles: BTreeSet<&str> = all.iter().map(|it| it["title"].as_str().unwrap()).collect();
    assert_eq!([uids.len(), titles.len()], [all.len(); 2]);
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    assert!(uids.iter().all(|uid| uid.len() <= 40 && uid.chars().all(allowed)), "{uids:?}");
    for dashboard in &all {
        assert_eq!(dashboard["schemaVersion"], 39);
        // An id belongs to the database of one Grafana.
        assert!(dashboard.get("id").is_none());
        assert!(dashboard["tags"].as_array().unwrap().contains(&"kuma".into()));
        assert!(dashboard["refresh"].is_string() && dashboard["time"]["from"].is_string());
    }
}

#[test]
fn panels_have_ids_places_and_queries_and_do_not_overlap() {
    for dashboard in parsed() {
        let title = dashboard["title"].as_str().unwrap();
        let ids: BTreeSet<u64> = panels(&dashboard).iter().map(|panel| number(&panel["id"])).collect();
        assert_eq!(ids.len(), panels(&dashboard).len(), "{title}");
        let mut taken = BTreeSet::new();
        for panel in panels(&dashboard) {
            let at = &panel["gridPos"];
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| number(&at[side]));
            assert!(x + w <= 24 && w > 0 && h > 0, "{title}: {panel}");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{title}: two panels at {cell:?}");
            }
            if panel["type"] == "row" {
                assert_eq!(panel["collapsed"], false);
                continue;
            }
            assert!(["timeseries", "stat", "table"].contains(&panel["type"].as_str().unwrap()));
            assert!(!panel["description"].as_str().unwrap().is_empty(), "{title}: {}", panel["title"]);
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string());
            assert!(panel["fieldConfig"]["overrides"].is_array());
            let targets = panel["targets"].as_array().unwrap();
            let names: BTreeSet<&str> = targets.iter().map(|it| it["refId"].as_str().unwrap()).collect();
            assert!(!targets.is_empty() && names.len() == targets.len());
            for target in targets {
                assert_eq!(target["datasource"]["uid"], "${datasource}");
                assert!(!target["expr"].as_str().unwrap().is_empty());
            }
        }
    }
}

#[test]
fn queries_use_the_variables_of_their_dashboard_and_those_of_grafana() {
    const OF_GRAFANA: [&str; 1] = ["__rate_interval"];
    for dashboard in parsed() {
        let variables: BTreeSet<&str> = dashboard["templating"]["list"]
            .as_array()
            .unwrap()
            .iter()
            .map(|variable| variable["name"].as_str().unwrap())
            .collect();
        let of_variables = dashboard["templating"]["list"].as_array().unwrap().iter();
        let of_panels = panels(&dashboard).iter().flat_map(|panel| panel["targets"].as_array()).flatten();
        let texts = of_variables
            .map(|variable| variable["query"].as_str().unwrap())
            .chain(of_panels.map(|target| target["expr"].as_str().unwrap()));
        let mut used = BTreeSet::from(["datasource"]);
        for text in texts {
            for after in text.split('$').skip(1) {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                let name = &after[..end];
                // $1 and ${1} are groups of an expression of Prometheus.
                if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
                    continue;
                }
                assert!(variables.contains(name) || OF_GRAFANA.contains(&name), "${name} in {text}");
                used.insert(name);
            }
        }
        let unused: Vec<_> = variables.difference(&used).collect();
        assert!(unused.is_empty(), "{}: {unused:?} change nothing", dashboard["title"]);
    }
}

#[test]
fn legends_name_labels_that_their_query_keeps() {
    for dashboard in parsed() {
        for target in panels(&dashboard).iter().flat_map(|panel| panel["targets"].as_array()).flatten() {
            let query = target["expr"].as_str().unwrap();
            for label in target["legendFormat"].as_str().unwrap().split("{{").skip(1) {
                let label = label.split_once("}}").unwrap().0;
                let Some(by) = query.find("by (") else { continue };
                let kept = query[by + 4..].split(')').next().unwrap();
                assert!(kept.split(", ").any(|kept| kept == label), "{label} is not kept by {query}");
            }
        }
    }
}
