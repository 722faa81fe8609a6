//! Number of proxies that a policy selects, after it was applied.

use contract::{lenient::read_partly, pages::Extent};
use resources::Kind;

use super::{AppliedResource, send::ApplyAction};
use crate::{client::ApiClient, terminal, types::Type};

/// As many policies as one run asks about: the answer is a courtesy, and applying thousands must stay quick.
const MOST: usize = 100;

/// Asks about policies, a bounded number of times.
#[derive(Debug, Default)]
pub struct Selections {
    asked: usize,
}

impl Selections {
    /// The number of proxies that what was applied selects; nothing for other kinds, where nothing changed and where
    /// the control plane does not say.
    pub fn of(&mut self, outcome: &AppliedResource, client: &ApiClient) -> Option<u64> {
        let key = &outcome.key;
        let written = matches!(outcome.action, ApplyAction::Created | ApplyAction::Updated);
        if !written || !is_policy(key.kind) || self.asked == MOST {
            return None;
        }
        self.asked += 1;
        let path =
            format!("{}/_resources/dataplanes?size=1", Type::of_kind(key.kind).item(&key.mesh, &key.name));
        let answer = client.get(&path).ok()?.json("").ok()?;
        read_partly::<Extent>(&answer).total
    }
}

/// Says it below the line that says what was done.
pub fn tell(outcome: &AppliedResource, is_shadow: bool) {
    let shadow = if is_shadow { ", and has no effect: it is a shadow" } else { "" };
    match outcome.selects {
        None => {}
        Some(0) => terminal::warn(&format!("{} selects 0 proxies{shadow}", outcome.key)),
        Some(1) => terminal::talk(&format!("  selects 1 proxy{shadow}")),
        Some(proxies) => terminal::talk(&format!("  selects {proxies} proxies{shadow}")),
    }
}

fn is_policy(kind: Kind) -> bool {
    kind.descriptor().policy.is_some_and(|policy| policy.top.is_some())
}
