//! `kuma-dp`, the agent: gets Envoy's bootstrap configuration from the control plane, starts and supervises Envoy.
//!
//! [`cli`] is the way in, [`settings`] the one table of everything that can be set. [`run`] is the
//! flow: the proxy's definition is checked here first ([`proxy`]), the control plane gives a bootstrap
//! configuration ([`bootstrap`]), [`dns`] answers names of the mesh, [`supervise`] keeps an Envoy alive
//! until a signal comes.
//!
//! Beside that it serves readiness, one page of metrics (also sent to collectors), probes of the application, and takes
//! access logs for servers that take lines.
//!
//! Invariants: no Envoy outlives its agent, however the agent ends ([`exec`]). No bootstrap configuration names a file
//! outside of the work directory, except those that the agent's settings name.

mod access_log;
mod bootstrap;
mod cli;
mod configuration;
mod control_plane;
mod dns;
mod drain_notice;
mod envoy;
mod exec;
mod failure;
mod grpc;
mod http_client;
mod log_file;
mod metrics;
mod metrics_push;
mod metrics_socket;
mod observed;
mod probes;
mod proxy;
mod readiness;
mod reference;
mod run;
mod settings;
mod supervise;
mod token;
mod wait;
mod work_dir;

use std::process::ExitCode;

use runtime::logs;

fn main() -> ExitCode {
    match cli::Cli::read().execute() {
        Ok(()) => {
            logs::flush();
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let said = failure.to_string();
            let lines: Vec<_> = said.lines().map(logs::printable).collect();
            logs::last_words(&format!("kuma-dp: {}", lines.join("\n")));
            ExitCode::from(failure.exit_code())
        }
    }
}
