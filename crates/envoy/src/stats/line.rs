//! The name of one statistic, taken apart: `<family>.<object>.<stat>`.

use super::names::NameTrie;

/// Statistics that begin with their family, each with one that every object of the family has.
const FAMILIES: [(&str, &str); 5] = [
    ("cluster", ".membership_total"),
    ("http", ".downstream_cx_destroy"),
    ("listener", ".no_filter_chain_match"),
    ("sds", ".key_rotation_failed"),
    ("tcp", ".downstream_cx_no_route"),
];
const HTTP: &str = "http";
/// Permissions stand at the beginning for connections, and behind `http.<object>.` for requests.
const PERMISSIONS: &str = "rbac";
/// Statistics of permissions.
const DECISIONS: [&str; 4] = ["allowed", "denied", "shadow_allowed", "shadow_denied"];

/// The name of a statistic in its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatName<'a> {
    pub family: &'a str,
    pub object: &'a str,
    pub stat: &'a str,
}

/// Takes names apart by the objects there are.
#[derive(Debug)]
pub struct Reader<'a> {
    planned: NameTrie<'a>,
    /// In the order of [`FAMILIES`].
    shown: [NameTrie<'a>; FAMILIES.len()],
}

impl<'a> Reader<'a> {
    /// `planned` are the names the proxy was sent, `all` the full names of its statistics.
    pub fn new(planned: impl Iterator<Item = &'a str>, all: impl Iterator<Item = &'a str>) -> Reader<'a> {
        let mut reader = Reader { planned: NameTrie::default(), shown: Default::default() };
        reader.planned.extend(planned);
        for name in all {
            let Some((family, rest)) = name.split_once('.') else { continue };
            let known = FAMILIES.iter().zip(&mut reader.shown).find(|((known, _), _)| *known == family);
            if let Some(((_, everybodys), shown)) = known {
                shown.extend(rest.strip_suffix(everybodys));
            }
        }
        reader
    }

    pub fn read<'n>(&self, name: &'n str) -> StatName<'n> {
        self.of_family(name).or_else(|| self.of_connections(name)).unwrap_or_else(|| {
            let (object, stat) = name.split_once('.').unwrap_or((name, name));
            StatName { family: object, object, stat }
        })
    }

    fn of_family<'n>(&self, name: &'n str) -> Option<StatName<'n>> {
        let (family, rest) = name.split_once('.')?;
        let (_, shown) = FAMILIES.iter().zip(&self.shown).find(|((known, _), _)| *known == family)?;
        let end = self.planned.longest(rest).max(shown.longest(rest)).or_else(|| rest.find('.'))?;
        let object = &rest[..end];
        let stat = &rest[end + 1..];
        if family == HTTP
            && let Some(permission) = stat.strip_prefix("rbac.")
        {
            return Some(self.of_requests(object, permission));
        }
        Some(StatName { family, object, stat })
    }

    /// `http.<object>.rbac.` is behind us; permissions with a prefix of their own are listed under that.
    fn of_requests<'n>(&self, object: &'n str, rest: &'n str) -> StatName<'n> {
        let own = rest.rsplit_once('.').filter(|(_, stat)| is_decision(stat)).map(|(own, _)| own.len());
        match own.or_else(|| self.planned.longest(rest)) {
            Some(end) => StatName { family: PERMISSIONS, object: &rest[..end], stat: &rest[end + 1..] },
            None => StatName { family: PERMISSIONS, object, stat: rest },
        }
    }

    /// `<object>.rbac.<decision>`
    fn of_connections<'n>(&self, name: &'n str) -> Option<StatName<'n>> {
        let (object, stat) = name.rsplit_once(".rbac.")?;
        is_decision(stat).then_some(StatName { family: PERMISSIONS, object, stat })
    }
}

fn is_decision(stat: &str) -> bool {
    DECISIONS.contains(&stat)
}
