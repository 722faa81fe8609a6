//! Examples for the help of every command. They stand here together, so that a test can try them all.

use clap::Command;

/// By the words of the command. Commands with more to say after their flags have their examples there.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("", &["kumactl check", "kumactl get dataplanes", "kumactl apply -f mesh.yaml"]),
    ("diff", &["kumactl diff -f policy.yaml", "kumactl diff --delete meshtimeout/slow --proxy web-1"]),
    ("export", &["kumactl export > backup.yaml", "kumactl export --profile all --include-admin"]),
    (
        "inspect",
        &[
            "kumactl inspect dataplanes",
            "kumactl inspect dataplane web-1",
            "kumactl inspect meshtimeout slow",
        ],
    ),
    (
        "inspect dataplanes",
        &["kumactl inspect dataplanes", "kumactl inspect dataplanes --tag kuma.io/service=web -o wide"],
    ),
    (
        "inspect dataplane",
        &[
            "kumactl inspect dataplane web-1",
            "kumactl inspect dataplane web-1 --type config-dump --include-eds",
            "kumactl inspect dataplane web-1 --type stats --format summary",
        ],
    ),
    ("inspect meshes", &["kumactl inspect meshes"]),
    ("inspect services", &["kumactl inspect services -m shop"]),
    ("inspect reachability", &["kumactl inspect reachability -m shop"]),
    ("inspect zones", &["kumactl inspect zones -o wide"]),
    ("inspect zone-ingresses", &["kumactl inspect zone-ingresses"]),
    ("inspect zone-egresses", &["kumactl inspect zone-egresses"]),
    ("inspect zone-ingress", &["kumactl inspect zone-ingress ingress-1 --type clusters"]),
    ("inspect zone-egress", &["kumactl inspect zone-egress egress-1 --type stats"]),
    (
        "inspect policy",
        &["kumactl inspect policy meshtimeout slow", "kumactl inspect policy mtp allow-web -m shop"],
    ),
    ("access", &["kumactl access web backend", "kumactl access web-1 backend --port http -m shop"]),
    ("graph", &["kumactl graph | dot -Tsvg > mesh.svg", "kumactl graph --service backend -o mermaid"]),
    (
        "events",
        &[
            "kumactl events",
            "kumactl events dataplane/web -f",
            "kumactl events -m shop --kind proxy-lost,proxy-left --since 10m",
        ],
    ),
    ("analyze", &["kumactl analyze", "kumactl analyze -f policies/ -R --fail-on error"]),
    ("proxy", &["kumactl proxy status", "kumactl proxy config web-1 listeners", "kumactl proxy log web-1"]),
    ("proxy status", &["kumactl proxy status", "kumactl proxy status web-1 -o json"]),
    (
        "proxy config",
        &[
            "kumactl proxy config web-1 listeners",
            "kumactl proxy config web-1 clusters --name backend -o json",
            "kumactl proxy config web-1 secrets",
            "kumactl proxy config web-1 routes --expected",
        ],
    ),
    ("config", &["kumactl config view", "kumactl config control-planes list"]),
    ("config view", &["kumactl config view", "kumactl config view --show-secrets -o json"]),
    (
        "config control-planes",
        &["kumactl config control-planes list", "kumactl config control-planes switch --name production"],
    ),
    (
        "config control-planes add",
        &[
            "kumactl config control-planes add --name local --address http://localhost:5681",
            "kumactl config control-planes add --name production --address https://cp.example.com:5682 \
             --ca-cert-file ca.pem --auth-type tokens --auth-conf token=\"$(cat token)\"",
        ],
    ),
    ("config control-planes list", &["kumactl config control-planes list -o wide"]),
    ("config control-planes remove", &["kumactl config control-planes remove --name production"]),
    ("config control-planes switch", &["kumactl config control-planes switch --name production"]),
    (
        "generate",
        &[
            "kumactl generate dataplane-token --name web-1",
            "kumactl generate user-token --name john --valid-for 24h",
        ],
    ),
    (
        "generate dataplane-token",
        &[
            "kumactl generate dataplane-token --name web-1 --valid-for 720h > web-1.token",
            "kumactl generate dataplane-token --tag kuma.io/service=web --valid-for 720h",
            "kumactl generate dataplane-token --label app=payments --valid-for 720h",
        ],
    ),
    ("generate zone-token", &["kumactl generate zone-token --zone east --scope ingress --valid-for 720h"]),
    (
        "generate user-token",
        &["kumactl generate user-token --name john --group mesh-system:admin --valid-for 24h > admin.token"],
    ),
    ("generate signing-key", &["kumactl generate signing-key > signing-key.pem"]),
    ("generate public-key", &["kumactl generate public-key --signing-key-path signing-key.pem"]),
    (
        "generate tls-certificate",
        &["kumactl generate tls-certificate --type server --hostname cp.example.com --hostname 10.0.0.1"],
    ),
    (
        "kri",
        &[
            "kumactl kri parse kri_msvc_default_east__backend_http",
            "kumactl kri build MeshService backend -m default",
        ],
    ),
    ("kri parse", &["kumactl kri parse kri_msvc_default_east__backend_http -o json"]),
    ("kri build", &["kumactl kri build msvc backend -m default --zone east --section http"]),
    ("sni", &["kumactl sni decode a4bb7f9d88bef4df6.backend.80.default.ms --offline", "kumactl sni usage"]),
    ("sni encode", &["kumactl sni encode kri_msvc_default_east__backend_80"]),
    ("sni decode", &["kumactl sni decode a4bb7f9d88bef4df6.backend.80.default.ms --offline"]),
    ("sni usage", &["kumactl sni usage", "kumactl sni usage --old --over 30s"]),
    ("install", &["kumactl install transparent-proxy --kuma-dp-user kuma-dp"]),
    (
        "install transparent-proxy",
        &[
            "kumactl install transparent-proxy --kuma-dp-user kuma-dp --redirect-dns",
            "kumactl install transparent-proxy --exclude-inbound-ports 22 --dry-run",
        ],
    ),
    (
        "install observability",
        &[
            "kumactl install observability | kubectl apply -f -",
            "kumactl install observability --target files /etc/kuma-observability",
            "kumactl install observability --target compose > compose.yaml",
            "kumactl install observability --dashboards-only --namespace monitoring | kubectl apply -f -",
        ],
    ),
    ("uninstall", &["kumactl uninstall transparent-proxy"]),
    ("uninstall transparent-proxy", &["kumactl uninstall transparent-proxy --dry-run"]),
    ("stat", &["kumactl stat services", "kumactl stat edges --server backend --window 15m"]),
    ("top", &["kumactl top --once", "kumactl top --client web --once"]),
    ("suggest", &["kumactl suggest permissions --service backend"]),
    (
        "suggest permissions",
        &["kumactl suggest permissions -o table", "kumactl suggest permissions | kumactl apply -f -"],
    ),
    ("migrate", &["kumactl migrate policies -f old.yaml", "kumactl migrate permissions --dry-run"]),
    ("migrate policies", &["kumactl migrate policies -f old.yaml > new.yaml"]),
    (
        "migrate permissions",
        &[
            "kumactl migrate permissions --dry-run",
            "kumactl migrate permissions --service backend --step shadow",
        ],
    ),
    ("version", &["kumactl version", "kumactl version --detailed -o json"]),
    ("completion", &["kumactl completion bash > /etc/bash_completion.d/kumactl"]),
];

/// Adds to the help of every command what it is used for.
pub fn add_to(command: Command) -> Command {
    of(command, "")
}

fn of(mut command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for name in names {
        let below = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        command = command.mut_subcommand(&name, |command| of(command, &below));
    }
    let said = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if said.contains("Examples:") {
        return command;
    }
    let known = EXAMPLES.iter().find(|(of, _)| *of == path).map(|(_, lines)| lines.join("\n  "));
    // Every type of policy is a command of its own, which help does not list.
    let policy = || path.starts_with("inspect ").then(|| format!("kumactl {path} my-policy"));
    let Some(lines) = known.or_else(policy) else { return command };
    let rest = if said.is_empty() { String::new() } else { format!("\n\n{said}") };
    command.after_help(format!("Examples:\n  {lines}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command with its words, but for those that only print help.
    fn each(command: &Command, path: &str, visit: &mut impl FnMut(&Command, &str)) {
        visit(command, path);
        for below in
            command.get_subcommands().filter(|below| !matches!(below.get_name(), "help" | "reference"))
        {
            each(below, &format!("{path} {}", below.get_name()), visit);
        }
    }

    /// The arguments of the `kumactl` in a line of shell.
    fn arguments(line: &str) -> Vec<Vec<String>> {
        let mut words: Vec<String> = vec![String::new()];
        let mut quote = None;
        for letter in line.chars() {
            match (letter, quote) {
                ('\'' | '"', None) => quote = Some(letter),
                (end, Some(begin)) if end == begin => quote = None,
                (' ', None) => words.push(String::new()),
                (letter, _) => words.last_mut().unwrap().push(letter),
            }
        }
        let commands = words.split(|word| word == "|");
        let commands = commands.filter_map(|words| {
            let end = words.iter().position(|word| word == ">").unwrap_or(words.len());
            let begin = words[..end].iter().position(|word| word == "kumactl")?;
            Some(words[begin..end].to_vec())
        });
        commands.collect()
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        let mut without = Vec::new();
        each(&crate::cli::command(), "kumactl", &mut |command, path| {
            let said = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            if !said.contains("Examples:\n  ") {
                without.push(path.to_owned());
            }
        });
        assert_eq!(without, Vec::<String>::new());
    }

    #[test]
    fn every_example_is_a_valid_command_line_of_its_command() {
        let mut tried = 0;
        let mut wrong = Vec::new();
        each(&crate::cli::command(), "kumactl", &mut |command, path| {
            let said = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines = said.lines().skip_while(|line| *line != "Examples:").skip(1);
            for line in lines.take_while(|line| line.starts_with("  ")) {
                let commands = arguments(line.trim());
                let about_it = commands.iter().any(|words| words.join(" ").starts_with(path));
                for words in commands {
                    tried += 1;
                    if let Err(error) = crate::cli::command().try_get_matches_from(&words) {
                        wrong.push(format!("{line}: {error}"));
                    }
                }
                if !about_it {
                    wrong.push(format!("{line} is no example of {path}"));
                }
            }
        });
        assert!(tried > 60, "{tried}");
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn no_example_is_of_a_command_that_does_not_exist() {
        let mut known = Vec::new();
        each(&crate::cli::command(), "", &mut |_, path| known.push(path.trim().to_owned()));
        for (path, _) in EXAMPLES {
            assert!(known.iter().any(|known| known == path), "{path}");
        }
    }
}
