//! The firewall of one family, through its programs.

use std::{thread, time::Duration};

use super::{
    netlink,
    programs::{IptablesVariant, Programs},
    saved::Saved,
};
use crate::{Config, Failure, Family};

/// The tables that rules of ours are in.
const TABLES: [&str; 3] = ["raw", "nat", "mangle"];

#[derive(Debug)]
pub struct Firewall {
    pub programs: Programs,
    /// Options of the legacy programs for waiting for their lock.
    lock: Vec<String>,
    retries: u32,
    pause: Duration,
}

impl Firewall {
    pub fn new(programs: Programs, config: &Config) -> Firewall {
        let mut lock = Vec::new();
        if programs.mode == IptablesVariant::Legacy {
            lock.extend((config.wait > 0).then(|| format!("--wait={}", config.wait)));
            lock.extend(
                (config.wait_interval > 0).then(|| format!("--wait-interval={}", config.wait_interval)),
            );
        }
        let retries = config.retry.max_retries;
        let pause = config.retry.sleep_between_retries.0;
        Firewall { programs, lock, retries, pause }
    }

    /// Reads the present state, with counters.
    pub fn save(&self) -> Result<Saved, Failure> {
        let text = self.programs.run(&self.programs.save, &["--counters".into()], None)?;
        Ok(Saved::parse(&text))
    }

    /// True if queries can be given a zone of conntrack.
    pub fn takes_zones(&self) -> bool {
        let text = "*raw\n-A OUTPUT -p udp --dport 53 -m owner --uid-owner 0 -j CT --zone 1\nCOMMIT\n";
        self.restore(&["--noflush", "--test"], text).is_ok()
    }

    /// Checks that the program understands the batch; changes nothing.
    pub fn test(&self, batch: &str) -> Result<(), Failure> {
        self.restore(&["--noflush", "--test"], batch)
    }

    /// Adds and removes what the batch says, and tries again when that fails.
    pub fn apply(&self, batch: &str, before: &Saved, say: &dyn Fn(&str)) -> Result<(), Failure> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut attempt = 0;
        loop {
            let Err(failure) = self.restore(&["--noflush"], batch) else { return Ok(()) };
            // A table that was changed already would be changed twice.
            let untouched = self.save().is_ok_and(|now| now.different(before).is_empty());
            if attempt == self.retries || !untouched {
                return Err(failure);
            }
            attempt += 1;
            say(&format!("{failure}; attempt {attempt} of {} follows in {:?}", self.retries, self.pause));
            thread::sleep(self.pause);
        }
    }

    /// Makes the tables what they were, when they are not.
    pub fn bring_back(&self, before: &Saved) -> Result<(), Failure> {
        let now = self.save()?;
        let different: Vec<&str> =
            now.different(before).into_iter().filter(|name| TABLES.contains(name)).collect();
        if different.is_empty() {
            return Ok(());
        }
        let known = before.text(&different);
        if !known.is_empty() {
            self.restore(&["--counters"], &known)?;
        }
        // Tables that were not there lose what is ours; nothing else is in them.
        if different.iter().any(|name| !before.has_table(name)) {
            let ours = self.save()?.replacing(Vec::new()).unwrap_or_default();
            let new: String =
                sections(&ours).filter(|(name, _)| !before.has_table(name)).map(|(_, text)| text).collect();
            self.restore(&["--noflush"], &new)?;
        }
        self.remove_empty_tables(before)
    }

    /// With nftables a table that was made for our rules goes with them; legacy ones belong to the kernel.
    pub fn remove_empty_tables(&self, before: &Saved) -> Result<(), Failure> {
        if self.programs.mode == IptablesVariant::Legacy {
            return Ok(());
        }
        for (table, chains) in self.save()?.left_empty(before) {
            if TABLES.contains(&table) {
                // Somebody may have added a rule since; then the table stays, and all is well.
                let _ = netlink::remove_empty_table(self.programs.family, table, &chains);
            }
        }
        Ok(())
    }

    /// Envoy binds `::6`, which unlike `127.0.0.6` is no address of the machine by itself.
    pub fn have_outbound_address(&self, wanted: bool) -> Result<(), Failure> {
        let result = match (self.programs.family, wanted) {
            (Family::V4, _) => Ok(()),
            (Family::V6, true) => netlink::add_passthrough_address(),
            (Family::V6, false) => netlink::remove_passthrough_address(),
        };
        result.map_err(Failure::Interfaces)
    }

    fn restore(&self, arguments: &[&str], text: &str) -> Result<(), Failure> {
        let arguments: Vec<String> =
            self.lock.iter().cloned().chain(arguments.iter().map(|&argument| argument.to_owned())).collect();
        self.programs.run(&self.programs.restore, &arguments, Some(text)).map(drop)
    }
}

/// The tables of a batch, each with its text.
fn sections(batch: &str) -> impl Iterator<Item = (&str, String)> {
    batch.split_inclusive("COMMIT\n").filter_map(|section| {
        let name = section.lines().next()?.strip_prefix('*')?;
        Some((name, section.to_owned()))
    })
}
