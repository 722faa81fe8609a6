//! The guides in their order, on one control plane, as a new user follows them.

use std::fs;

use e2e::{envoy, own_port, proxy::own_address};

use crate::documents::{Shell, root, start_control_plane};

/// Default port of an agent's readiness endpoint.
const READINESS_PORT: &str = "9902";

/// The documents of the project, with addresses and ports that are free on this machine.
struct Guides {
    replaced: Vec<(&'static str, String)>,
}

impl Guides {
    fn new() -> Guides {
        let [first, second, ..] = own_address().octets();
        // Tests take addresses of this block from its beginning.
        let network = format!("{first}.{second}.250.");
        let [one, two] = [(), ()].map(|()| own_port().unwrap().to_string());
        Guides { replaced: vec![("127.0.0.", network), (READINESS_PORT, one), ("9903", two)] }
    }

    /// Port that replaces the default of agents.
    fn readiness_port(&self) -> &str {
        self.replaced
            .iter()
            .find(|(shown, _)| *shown == READINESS_PORT)
            .map_or(READINESS_PORT, |(_, own)| own)
    }

    fn text(&self, path: &str) -> String {
        let mut text = fs::read_to_string(root().join(path)).unwrap();
        for (shown, own) in &self.replaced {
            text = text.replace(shown, own);
        }
        text
    }
}

#[test]
fn a_new_user_follows_the_guides_in_their_order() {
    let guides = Guides::new();
    let mut shell = Shell::new(&[("KUMA_DATAPLANE_RUNTIME_CONCURRENCY", "1")]);
    shell.set("ENVOY_BIN", envoy().unwrap().display().to_string());
    let control_plane = start_control_plane(&shell);
    shell.set("KUMA_CONTROL_PLANE_URL", control_plane.dp_server());
    shell.set("KUMA_READINESS_PORT", guides.readiness_port());

    for guide in ["first-steps.md", "proxies.md", "before-you-apply.md"] {
        shell.run_examples(guide, &guides.text(&format!("docs/guide/{guide}")));
    }
    // The services of the README are there already, and have proxies.
    let readme = guides.text("README.md");
    let readme = readme.replace(" created\n", " unchanged\n").replace("STATE         HOSTNAMES…", "STATE…");
    let readme = readme.replace("Unavailable   …", "Available   …\n…");
    shell.run_examples("README.md", &readme);
}

/// Commands that a reader types, in order, each with whether it is in a `console` block, which the test above runs. The
/// others are in blocks without a language.
fn typed(text: &str) -> Vec<(String, bool)> {
    let mut commands = Vec::new();
    let mut block = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (None, Some("")) => commands.push((line.to_owned(), false)),
            (None, Some("console")) => {
                commands.extend(line.strip_prefix("$ ").map(|command| (command.to_owned(), true)));
            }
            _ => {}
        }
    }
    commands
}

#[test]
fn a_reader_has_built_and_found_every_program_before_the_guides_use_it() {
    const BUILD: &str = "cargo build";
    const FIND: &str = "export PATH=$PWD/target/debug:$PATH";
    const ENVOY: &str = "export ENVOY_BIN=$(cargo xtask envoy)";
    // The test above is like a reader who did these: its programs are built and in its PATH, its control plane runs.
    let done_already = [BUILD, FIND, "kuma-cp run", ENVOY];
    let of_the_machine = ["cargo", "curl", "echo", "export"];
    let mut before: Vec<String> = Vec::new();
    for guide in ["first-steps.md", "proxies.md", "before-you-apply.md"] {
        let text = fs::read_to_string(root().join("docs/guide").join(guide)).unwrap();
        for (command, is_run) in typed(&text) {
            assert!(is_run || done_already.contains(&&*command), "{guide}: no test runs {command}");
            let known = |needed: &str| before.iter().any(|earlier| earlier == needed);
            let program = command.split(' ').next().unwrap_or_default();
            if !of_the_machine.contains(&program) {
                assert!(known(BUILD) && known(FIND), "{guide}: {command} comes before {FIND}");
            }
            assert!(program != "kuma-dp" || known(ENVOY), "{guide}: {command} comes before {ENVOY}");
            before.push(command);
        }
    }
    for command in done_already {
        assert!(before.iter().any(|typed| typed == command), "no guide says {command}");
    }
}
