//! The command line of `kuma-cp`.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;
use runtime::logs::{Journal, Level, LogFormat};
use serde_json::json;
use store::backup::Backup;

use crate::{
    boot, certificates,
    config::{
        Config, print,
        source::{self, LoadedConfig},
    },
    files::Draft,
    storage,
};

/// Time to wait for the disk of the audit log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Advice when the store is in use.
const ASK_IT: &str = "cannot export; a control plane that runs makes the backup itself, for an administrator: curl --fail \
                      --output backup.jsonl http://localhost:5681/_backup";

/// Control plane of the mesh
#[derive(Debug, Parser)]
#[command(name = "kuma-cp", version = version::SHOWN, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the control plane
    Run(Run),
    /// Show what can be configured
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Back up and restore everything that is stored, with the TLS certificate that agents trust
    #[command(subcommand)]
    Store(StoreCommand),
    /// Prepare the store for this version
    #[command(subcommand)]
    Migrate(MigrateCommand),
    /// Print the version
    Version,
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// YAML file with the settings to change; see `kuma-cp config defaults`
    #[arg(short = 'c', long = "config-file", value_name = "FILE")]
    config_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    file: ConfigFile,
    /// Log level: off, error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<Level>,
    /// Format of log lines: text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every setting with its default as a commented YAML file
    Defaults,
    /// Print the reference page of the documentation
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Write everything that is stored into a file. With SQLite the control plane must not run; `GET /_backup` of its
    /// API gives an administrator the same while it does
    Export {
        /// The file to write; `-` is standard output
        file: PathBuf,
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Read a file made by `export` into an empty store
    Import {
        /// The file to read; `-` is standard input
        file: PathBuf,
        /// Leave a TLS certificate that is in the work directory, although agents trust the one of the backup
        #[arg(long)]
        keep_certificate: bool,
        #[command(flatten)]
        config: ConfigFile,
    },
}

#[derive(Debug, Subcommand)]
enum MigrateCommand {
    /// Bring the store up to date; `run` does the same when it starts
    Up {
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Take over everything from Kuma's own control plane, which must be stopped: reads its tables in the
    /// database that store.postgres names, and writes into an empty store, in the same database or another one
    ImportKuma {
        #[command(flatten)]
        config: ConfigFile,
    },
}

impl Cli {
    /// Does what was asked for.
    pub fn execute(self) -> Result<()> {
        match self.command {
            Command::Run(run) => block_on(run.execute()),
            Command::Config(ConfigCommand::Defaults) => print(&print::defaults_yaml()),
            Command::Config(ConfigCommand::Reference) => print(&print::reference_markdown()),
            Command::Store(StoreCommand::Export { file, config }) => block_on(export(&file, &config)),
            Command::Store(StoreCommand::Import { file, keep_certificate, config }) => {
                block_on(import(&file, keep_certificate, &config))
            }
            Command::Migrate(MigrateCommand::Up { config }) => block_on(migrate(&config)),
            Command::Migrate(MigrateCommand::ImportKuma { config }) => block_on(import_kuma(&config)),
            Command::Version => print(&format!("kuma-cp {}\n", version::SHOWN)),
        }
    }
}

impl ConfigFile {
    fn load(&self) -> Result<LoadedConfig> {
        source::load(self.config_file.as_deref(), std::env::vars())
    }
}

impl Run {
    async fn execute(self) -> Result<()> {
        certificates::rotation::survive_hangups()?;
        let mut loaded = self.file.load()?;
        let general = &mut loaded.config.general;
        general.log_level = self.log_level.unwrap_or(general.log_level);
        general.log_format = self.log_format.unwrap_or(general.log_format);
        boot::run(loaded).await
    }
}

async fn export(file: &Path, config: &ConfigFile) -> Result<()> {
    let config = talk(config.load()?);
    let store = storage::open_existing(&config).await.map_err(|error| {
        let busy = |cause: &(dyn std::error::Error + 'static)| {
            matches!(cause.downcast_ref::<store::Error>(), Some(store::Error::Unavailable(_)))
        };
        if error.chain().any(busy) { error.context(ASK_IT) } else { error }
    })?;
    let files = certificates::backup::files(&config)?;
    for path in certificates::backup::left_out(&config) {
        say(&format!("not in the backup, keep a copy: {path}"));
    }
    if file == Path::new("-") {
        store::backup::export(store.as_ref(), &files, BufWriter::new(io::stdout()))?;
        return Ok(());
    }
    let failed = || format!("cannot write {}", file.display());
    // A backup holds every secret, so it is for its owner alone.
    let draft = Draft::of(file, 0o600).with_context(failed)?;
    let count =
        store::backup::export(store.as_ref(), &files, BufWriter::new(draft.file())).with_context(failed)?;
    draft.finish().with_context(failed)?;
    say(&format!("{count} resources exported to {}", file.display()));
    Ok(())
}

async fn import(file: &Path, keep_certificate: bool, config: &ConfigFile) -> Result<()> {
    let config = talk(config.load()?);
    let Backup { resources, files } = if file == Path::new("-") {
        store::backup::read(BufReader::new(io::stdin()))?
    } else {
        let input = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        store::backup::read(BufReader::new(input))?
    };
    let store = storage::open(&config).await?;
    // Files come first, because they can be written again and a store that is not empty cannot.
    store::backup::check(store.as_ref(), &resources)?;
    certificates::backup::restore(&config, &files, keep_certificate)?;
    let count = store::backup::restore(store.as_ref(), resources).await?;
    say(&format!("{count} resources imported"));
    record_import(&config, count);
    if files.is_empty() {
        say(
            "the backup has no TLS certificate: agents that trust the generated one of another folder need the new one",
        );
    }
    Ok(())
}

/// An import is a write as well; whether it is recorded does not decide whether it succeeds.
fn record_import(config: &Config, resources: usize) {
    let audit = &config.audit;
    if !audit.enabled || audit.file.is_empty() {
        return;
    }
    let user = format!("uid {}", nix::unistd::getuid());
    let line = json!({
        "timestamp": Timestamp::now(), "user": user, "verb": "import", "kind": "Backup", "resources": resources,
    });
    match Journal::open(Path::new(&audit.file)) {
        Ok(journal) => {
            journal.write(&line.to_string());
            journal.flush(LAST_LINES);
        }
        Err(error) => say(&format!("warning: the import is not in {} (audit.file): {error}", audit.file)),
    }
}

async fn migrate(config: &ConfigFile) -> Result<()> {
    storage::open(&talk(config.load()?)).await?;
    say("the store is up to date");
    Ok(())
}

async fn import_kuma(config: &ConfigFile) -> Result<()> {
    let config = talk(config.load()?);
    let (count, kuma) = storage::import_kuma(&config).await?;
    record_import(&config, count);
    for ((kind, why), count) in &kuma.skipped {
        say(&format!("skipped {count} {kind}: {why}"));
    }
    for field in &kuma.unknown_fields {
        say(&format!("skipped a field of {field}: this program does not know it"));
    }
    say(&format!("{count} resources imported"));
    Ok(())
}

/// Passes the warnings on to the person at the terminal.
fn talk(loaded: LoadedConfig) -> Config {
    loaded.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    loaded.config
}

/// With no one to read it, the work is done all the same.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // `kuma-cp config defaults | head` is not a failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn block_on(task: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(task)
}
