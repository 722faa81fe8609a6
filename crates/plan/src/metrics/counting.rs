//! Selection of the statistics that a proxy keeps at all.
//!
//! A proxy cannot change that while it runs: it is decided when the proxy starts, from the MeshMetric that
//! selects it then. The proxy sends what it was started with as a text when it connects; the text is
//! `All`, `Basic` or `None`, then `used` if what has had no traffic is not counted, then `-` and `+` with parts
//! of names that are less or more.

use std::{collections::BTreeSet, fmt};

use resources::kinds::mesh_metric::{
    Conf, ProfileName, Profiles, SelectorType,
    profile::{BASIC_BEGINNINGS, BASIC_NAMES, BASIC_PARTS},
};

/// Word in the text that limits counting to what is used.
const USED: &str = "used";

/// Families of metrics, by parts of their names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Counting {
    base: Base,
    /// Clusters are counted for from their first traffic on.
    used_only: bool,
    /// Parts of the profile Basic that are not wanted.
    without: BTreeSet<&'static str>,
    /// Names of which some part must be this.
    with: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Base {
    All,
    Basic,
    None,
}

impl Base {
    fn name(self) -> &'static str {
        match self {
            Base::All => "All",
            Base::Basic => "Basic",
            Base::None => "None",
        }
    }
}

impl Counting {
    /// `None` where everything may be wanted: without a backend nothing is decided, and what an expression
    /// matches cannot be derived from names of statistics.
    pub fn of(conf: &Conf) -> Option<Counting> {
        if conf.backends().is_empty() {
            return None;
        }
        let used_only = conf.sidecar.as_ref().and_then(|sidecar| sidecar.include_unused) != Some(true);
        let default = Profiles::default();
        let profiles = conf.profiles().unwrap_or(&default);
        let base = match profiles.effective() {
            ProfileName::All | ProfileName::Other(_) => Base::All,
            _ if profiles.included().iter().any(|selector| selector.kind == SelectorType::Regex) => Base::All,
            ProfileName::Basic => Base::Basic,
            ProfileName::None => Base::None,
        };
        if base == Base::All {
            let all = Counting { base, used_only, without: BTreeSet::new(), with: BTreeSet::new() };
            return used_only.then_some(all);
        }
        let with = profiles.included().iter().map(|selector| selector.text.clone());
        let excluded: Vec<&str> = profiles
            .excluded()
            .iter()
            .filter(|selector| selector.kind == SelectorType::Contains)
            .map(|selector| selector.text.as_str())
            .collect();
        let unwanted = |part: &&str| excluded.iter().any(|text| part.contains(text));
        Some(Counting {
            base,
            used_only,
            without: BASIC_PARTS.into_iter().filter(unwanted).filter(|_| base == Base::Basic).collect(),
            with: with.filter(|text| can_be_a_name(text)).collect(),
        })
    }

    /// Reads what a proxy was started with; `None` for everything.
    fn parse(text: &str) -> Option<Counting> {
        let mut words = text.split(' ');
        let first = words.next()?;
        let base = [Base::All, Base::Basic, Base::None].into_iter().find(|base| base.name() == first)?;
        let mut used_only = false;
        let mut without = BTreeSet::new();
        let mut with = BTreeSet::new();
        for word in words {
            if let Some(part) = word.strip_prefix('-') {
                without.extend(BASIC_PARTS.into_iter().find(|known| *known == part));
            } else if let Some(part) = word.strip_prefix('+') {
                with.insert(part.to_owned());
            } else if word == USED {
                used_only = true;
            }
        }
        Some(Counting { base, used_only, without, with })
    }

    /// Names metrics that a conf wants and that a proxy started with `started` does not count.
    pub fn missing(conf: &Conf, started: Option<&str>) -> Option<String> {
        let started = Counting::parse(started?)?;
        let wanted = Counting::of(conf);
        let unused = started.used_only && wanted.as_ref().is_none_or(|wanted| !wanted.used_only);
        let families = match wanted {
            _ if started.base == Base::All => None,
            Some(wanted) if wanted.base != Base::All => wanted.missing_in(&started),
            _ => Some("all but those".to_owned()),
        };
        let unused = unused.then(|| "those of clusters without traffic".to_owned());
        families.into_iter().chain(unused).reduce(|families, unused| format!("{families}, {unused}"))
    }

    fn missing_in(&self, started: &Counting) -> Option<String> {
        let counted: Vec<&str> = started.parts().into_iter().chain(started.whole()).collect();
        let has = |wanted: &&str| counted.iter().any(|counted| wanted.contains(counted));
        let wanted = self.parts().into_iter().chain(self.whole());
        let missing: Vec<&str> = wanted.filter(|wanted| !has(wanted)).collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }

    /// Every family is counted.
    pub fn is_all(&self) -> bool {
        self.base == Base::All
    }

    /// Clusters are counted for from their first traffic on.
    pub fn used_only(&self) -> bool {
        self.used_only
    }

    /// Texts that stand in the name of every family that is counted; one of them is enough.
    pub fn parts(&self) -> Vec<&str> {
        let is_basic = self.base == Base::Basic;
        let basic = BASIC_PARTS.iter().copied().filter(|part| is_basic && !self.without.contains(part));
        basic.collect()
    }

    /// Names of families, or beginnings or parts of them, that are counted too.
    pub fn whole(&self) -> Vec<&str> {
        let basic = BASIC_NAMES.iter().chain(&BASIC_BEGINNINGS).copied();
        let basic = basic.filter(|_| self.base == Base::Basic);
        basic.chain(self.with.iter().map(String::as_str)).collect()
    }
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.base.name())?;
        if self.used_only {
            write!(f, " {USED}")?;
        }
        self.without.iter().try_for_each(|part| write!(f, " -{part}"))?;
        self.with.iter().try_for_each(|part| write!(f, " +{part}"))
    }
}

/// A text with another character stands in no name.
fn can_be_a_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn conf(profiles: Value) -> Conf {
        let page = json!({"type": "Prometheus", "prometheus": {}});
        serde_json::from_value(json!({"sidecar": {"profiles": profiles}, "backends": [page]})).unwrap()
    }

    fn counting(profiles: Value) -> Option<Counting> {
        Counting::of(&conf(profiles))
    }

    fn names(names: &[&str]) -> Value {
        names.iter().map(|name| json!({ "name": name })).collect()
    }

    #[test]
    fn what_everybody_may_want_is_not_limited() {
        assert_eq!(Counting::of(&Conf::default()), None);
        let unused = |profiles: Value| {
            let mut conf = conf(profiles);
            conf.sidecar.get_or_insert_default().include_unused = Some(true);
            Counting::of(&conf)
        };
        for all in [
            json!({"appendProfiles": names(&["Basic", "All"])}),
            json!({"include": [{"type": "Regex", "match": ".*"}]}),
        ] {
            assert_eq!(counting(all.clone()).unwrap().to_string(), "All used");
            assert_eq!(unused(all), None);
        }
        assert_eq!(unused(json!({})).unwrap().to_string(), "Basic");
    }

    #[test]
    fn a_text_says_what_a_proxy_was_started_with() {
        let basic = counting(json!({})).unwrap();
        assert_eq!(basic.to_string(), "Basic used");
        let own = counting(json!({
            "exclude": [{"type": "Contains", "match": "overflow"}, {"type": "Prefix", "match": "envoy_http"}],
            "include": [{"type": "Prefix", "match": "envoy_cluster_lb"}, {"type": "Exact", "match": "not a name"}],
        }))
        .unwrap();
        assert_eq!(own.to_string(), "Basic used -overflow +envoy_cluster_lb");
        assert_eq!(Counting::parse(&own.to_string()), Some(own));
        let none = counting(json!({"appendProfiles": names(&["None"])})).unwrap();
        assert_eq!((none.to_string().as_str(), none.parts(), none.whole()), ("None used", vec![], vec![]));
    }

    #[test]
    fn what_is_wanted_later_is_missing_until_the_proxy_starts_again() {
        let missing = |profiles: Value, started| Counting::missing(&conf(profiles), started);
        assert_eq!(missing(json!({}), None), None);
        assert_eq!(missing(json!({}), Some("Basic")), None);
        assert_eq!(missing(json!({}), Some("Basic -overflow")).as_deref(), Some("overflow"));
        assert!(missing(json!({}), Some("None")).unwrap().contains("rq_time"));
        let more = json!({"include": [{"type": "Exact", "match": "envoy_cluster_lb_recalculate"}]});
        assert_eq!(missing(more.clone(), Some("Basic")).as_deref(), Some("envoy_cluster_lb_recalculate"));
        assert_eq!(missing(more, Some("Basic +envoy_cluster_lb")), None);
        let all = json!({"appendProfiles": names(&["All"])});
        assert_eq!(missing(all.clone(), Some("Basic")).as_deref(), Some("all but those"));
        assert_eq!(missing(all.clone(), Some("All used")), None);
        assert_eq!(missing(json!({}), Some("All used")), None);
        let mut unused = conf(all);
        unused.sidecar.get_or_insert_default().include_unused = Some(true);
        let missing = |started| Counting::missing(&unused, Some(started));
        assert_eq!(missing("All used").as_deref(), Some("those of clusters without traffic"));
        let both = "all but those, those of clusters without traffic";
        assert_eq!(
            (missing("Basic").as_deref(), missing("Basic used").as_deref()),
            (Some("all but those"), Some(both))
        );
    }
}
