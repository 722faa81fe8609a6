//! How many proxies a policy selects that was just applied.

use resources::Kind;

use super::{Outcome, send::Action};
use crate::{client::Client, terminal, types::Type};

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
    pub fn of(&mut self, outcome: &Outcome, client: &Client) -> Option<u64> {
        let key = &outcome.key;
        let written = matches!(outcome.action, Action::Created | Action::Updated);
        if !written || !is_policy(key.kind) || self.asked == MOST {
            return None;
        }
        self.asked += 1;
        let path =
            format!("{}/_resources/dataplanes?size=1", Type::of_kind(key.kind).item(&key.mesh, &key.name));
        let answer = client.get(&path).ok()?.json("").ok()?;
        answer["total"].as_u64()
    }
}

/// Says it below the line that says what was done.
pub fn tell(outcome: &Outcome, is_shadow: bool) {
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
