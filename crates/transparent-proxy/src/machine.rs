//! Facts about this machine, and changes to its firewall: all input and output is here.

mod firewall;
mod host;
mod netlink;
mod programs;
mod saved;

use std::time::{Duration, Instant};

use crate::{Config, Environment, Failure, Family, FirewallRules, config::IpFamilyMode};
use firewall::Firewall;
use programs::{IptablesVariant, Programs};
use saved::Saved;

/// Limit of the time of an installation, retries included.
const LIMIT: Duration = Duration::from_secs(5 * 60);

/// Plan of an installation on this machine.
#[derive(Debug)]
pub struct Installation {
    families: Vec<(Firewall, FirewallRules)>,
    /// Families of which only the rules are known, because their programs are missing.
    unknown: Vec<(Family, FirewallRules)>,
    /// Deviations from the configuration, and the reasons.
    pub warnings: Vec<String>,
}

impl Installation {
    /// Looks at the machine. With `dryRun` nothing has to be there.
    pub fn prepare(config: &Config) -> Result<Installation, Failure> {
        let mut installation =
            Installation { families: Vec::new(), unknown: Vec::new(), warnings: Vec::new() };
        let is_root = host::is_root();
        if !is_root && !config.dry_run {
            return Err(Failure::NotRoot);
        }
        // Wrong settings are said before anything about the machine.
        FirewallRules::of(config, Family::V4, &Environment::bare(0))?;
        let uid = host::uid(config)?;
        if !is_root {
            installation.warn("not root: what the firewall contains is not known, and the rules may differ");
        }
        let deadline = Instant::now() + LIMIT;
        let mode = installation.add(config, Family::V4, None, uid, deadline)?;
        if config.ip_family_mode == IpFamilyMode::IPv4 {
            installation.retire_ipv6(config, mode, deadline);
            return Ok(installation);
        }
        if !host::has_ipv6()? {
            installation.warn(
                "this machine has no IPv6 address beside that of the loopback interface: no rules for IPv6",
            );
            return Ok(installation);
        }
        if let Err(failure) = installation.add(config, Family::V6, mode, uid, deadline) {
            installation.warn(format!("no rules for IPv6: {failure}"));
        }
        Ok(installation)
    }

    /// Rules of an earlier installation that was for both families go with its other rules.
    fn retire_ipv6(&mut self, config: &Config, mode: Option<IptablesVariant>, deadline: Instant) {
        let programs = Programs::find(config, Family::V6, mode, deadline);
        let firewall = programs.map(|programs| Firewall::new(programs, config));
        if let Some(firewall) = firewall.ok().filter(|firewall| firewall.save().is_ok()) {
            self.families.push((firewall, FirewallRules::none()));
        }
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    fn add(
        &mut self,
        config: &Config,
        family: Family,
        mode: Option<IptablesVariant>,
        uid: u32,
        deadline: Instant,
    ) -> Result<Option<IptablesVariant>, Failure> {
        let programs = match Programs::find(config, family, mode, deadline) {
            Ok(programs) => programs,
            Err(failure) if config.dry_run => {
                self.warn(format!("{failure}; the rules of an installation may differ"));
                let mut environment = Environment::bare(uid);
                environment.resolvers = host::resolvers(config)?;
                self.unknown.push((family, FirewallRules::of(config, family, &environment)?));
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        let mode = programs.mode;
        let firewall = Firewall::new(programs, config);
        let environment = self.environment(config, family, uid, &firewall)?;
        let rules = FirewallRules::of(config, family, &environment)?;
        self.families.push((firewall, rules));
        Ok(Some(mode))
    }

    fn environment(
        &mut self,
        config: &Config,
        family: Family,
        uid: u32,
        firewall: &Firewall,
    ) -> Result<Environment, Failure> {
        let dns = &config.redirect.dns;
        let resolvers = host::resolvers(config)?;
        let of_family = resolvers.iter().any(|ip| ip.is_ipv4() == (family == Family::V4));
        if dns.enabled && !dns.capture_all && !of_family {
            self.warn(format!(
                "couldn't find any {family} servers in {}: {family} queries are not redirected",
                dns.resolv_config_path
            ));
        }
        let programs = &firewall.programs;
        let comments = programs.has_match("comment");
        if !comments && !config.comments.disabled {
            self.warn(format!(
                "{family} rules have no comments, because iptables lacks the module 'comment'"
            ));
        }
        let wants_zones = (dns.enabled || dns.capture_all) && !dns.skip_conntrack_zone_split;
        // Only root can try it.
        let takes_zones = || !host::is_root() || firewall.takes_zones();
        let conntrack_zones = wants_zones && programs.has_match("conntrack") && takes_zones();
        if wants_zones && !conntrack_zones {
            self.warn(format!(
                "{family} queries are not tracked in zones of their own, because iptables lacks 'conntrack' or the table 'raw'"
            ));
        }
        let docker_output = match firewall.save() {
            Ok(saved) => saved.has_chain("nat", "DOCKER_OUTPUT"),
            Err(_) if config.dry_run => false,
            Err(failure) => return Err(failure),
        };
        Ok(Environment {
            uid,
            loopback: host::loopback()?,
            comments,
            conntrack_zones,
            docker_output,
            resolvers,
        })
    }

    /// Text that `--dry-run` prints.
    pub fn text(&self) -> String {
        let known = self.families.iter().map(|(firewall, rules)| (firewall.programs.family, rules));
        let mut all: Vec<_> =
            known.chain(self.unknown.iter().map(|(family, rules)| (*family, rules))).collect();
        all.retain(|(_, rules)| !rules.is_empty());
        all.sort_by_key(|(family, _)| *family == Family::V6);
        let parts: Vec<String> = all
            .iter()
            .map(|(family, rules)| format!("### {family} ###\n\n{}", rules.text().trim_end()))
            .collect();
        format!("{}\n", parts.join("\n\n"))
    }

    /// Installs the rules in place of those of an earlier installation: all of them, or none.
    pub fn install(&self, say: &dyn Fn(&str)) -> Result<(), Failure> {
        let mut steps = Vec::new();
        for (firewall, rules) in &self.families {
            let before = firewall.save()?;
            let family = firewall.programs.family;
            let batch = before.replacing(rules.lines()).ok_or(Failure::NoComments { family })?;
            firewall.test(&batch)?;
            steps.push((firewall, before, batch, !rules.is_empty()));
        }
        let mut changed = Vec::new();
        for (firewall, before, batch, has_rules) in &steps {
            say(&format!("{}: {} rules", firewall.programs.restore.display(), firewall.programs.family));
            changed.push((*firewall, before));
            let result = firewall
                .apply(batch, before, say)
                .and_then(|()| firewall.remove_empty_tables(before))
                .and_then(|()| firewall.have_outbound_address(*has_rules));
            if let Err(cause) = result {
                return Err(roll_back(cause, &changed));
            }
        }
        Ok(())
    }
}

/// Brings back what was there before the first change.
fn roll_back(cause: Failure, changed: &[(&Firewall, &Saved)]) -> Failure {
    let cause = Box::new(cause);
    for (firewall, before) in changed.iter().rev() {
        if let Err(undo) = firewall.bring_back(before) {
            return Failure::NotRolledBack { cause, undo: Box::new(undo) };
        }
    }
    Failure::RolledBack { cause }
}

/// Removes everything that an installation added, of both families and both kinds of iptables; says
/// whether there was anything. With `dryRun` it only tells.
pub fn uninstall(config: &Config, say: &dyn Fn(&str)) -> Result<bool, Failure> {
    if !host::is_root() {
        return Err(Failure::NotRootToRemove);
    }
    let deadline = Instant::now() + LIMIT;
    let mut found = false;
    for family in [Family::V4, Family::V6] {
        let all = Programs::find_all(config, family, deadline)?;
        if all.is_empty() && family == Family::V4 {
            return Err(Programs::missing(family));
        }
        for programs in all {
            found |= uninstall_with(&Firewall::new(programs, config), config, say)?;
        }
    }
    Ok(found)
}

fn uninstall_with(firewall: &Firewall, config: &Config, say: &dyn Fn(&str)) -> Result<bool, Failure> {
    let Programs { family, restore, .. } = &firewall.programs;
    let before = match firewall.save() {
        Ok(before) => before,
        // A machine without IPv6 has no rules for it either.
        Err(failure) if *family == Family::V6 => {
            say(&format!("nothing to remove for IPv6: {failure}"));
            return Ok(false);
        }
        Err(failure) => return Err(failure),
    };
    let batch = before.replacing(Vec::new()).ok_or(Failure::NoComments { family: *family })?;
    if batch.is_empty() {
        return Ok(false);
    }
    let program = restore.display();
    if config.dry_run {
        say(&format!("{program} would remove {family} rules:\n{}", batch.trim_end()));
        return Ok(true);
    }
    firewall.test(&batch)?;
    // The address goes first: an interrupted removal is begun again as long as rules are there.
    firewall.have_outbound_address(false)?;
    if let Err(cause) = firewall.apply(&batch, &before, say) {
        let cause = roll_back(cause, &[(firewall, &before)]);
        firewall.have_outbound_address(true)?;
        return Err(cause);
    }
    firewall.remove_empty_tables(&before)?;
    say(&format!("{program}: {family} rules removed"));
    Ok(true)
}
