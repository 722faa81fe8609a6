//! A real PostgreSQL for tests: a temporary cluster from the distribution's package, on a free port
//! of the loopback interface.
//!
//! A small shell process stands between the test and the server. It waits on a pipe that only the
//! test process holds open: when the test ends in whatever way, `kill -9` included, the pipe closes,
//! and the shell stops the server and removes its files. Nothing is ever left behind.
//!
//! [`fresh_database`] is what most tests want: a database of their own on a cluster that all tests
//! of the process share. [`Postgres::start`] is for tests that stop the server or change its settings.

mod certificates;

use std::{
    env, fs,
    io::Write as _,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use tempfile::TempDir;

use crate::ports::own_port;

pub use certificates::Certificates;

/// The role every fixture has, a superuser.
pub const USER: &str = "kuma";
/// Its password.
pub const PASSWORD: &str = "kuma-test";
/// With TLS on, this database additionally asks for a client certificate.
pub const CLIENT_CERTIFICATE_DATABASE: &str = "wants_client_certificate";

const START_DEADLINE: Duration = Duration::from_secs(60);

/// Options of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Off is faster; nothing is lost by it unless the machine itself goes down.
    pub fsync: bool,
    /// Offer TLS with a certificate of [`Certificates`].
    pub tls: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { fsync: true, tls: false }
    }
}

/// A running (or, after [`Postgres::stop`], stopped) cluster. Dropping it removes everything.
#[derive(Debug)]
pub struct Postgres {
    programs: Programs,
    options: Options,
    directory: TempDir,
    port: u16,
    keeper: Option<Child>,
}

/// Address and credentials of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub name: String,
}

impl Database {
    pub fn url(&self) -> String {
        let Database { host, port, user, password, name } = self;
        format!("postgres://{user}:{password}@{host}:{port}/{name}")
    }
}

/// The cluster that all tests of this process share. Do not stop it.
pub fn shared() -> Result<&'static Postgres> {
    static SHARED: OnceLock<Result<Postgres, String>> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            let options = Options { fsync: false, ..Options::default() };
            Postgres::start_with(options).map_err(|error| format!("{error:#}"))
        })
        .as_ref()
        .map_err(|error| anyhow!("{error}"))
}

/// An empty database of the shared cluster.
pub fn fresh_database() -> Result<Database> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    shared()?.create_database(&format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed)))
}

impl Postgres {
    /// A durable cluster without TLS.
    pub fn start() -> Result<Postgres> {
        Postgres::start_with(Options::default())
    }

    pub fn start_with(options: Options) -> Result<Postgres> {
        let programs = Programs::find()?;
        let directory = tempfile::Builder::new()
            .prefix("kuma-postgres-")
            .tempdir()
            .context("create a directory for PostgreSQL")?;
        programs.give(directory.path())?;
        write_password(&programs, directory.path())?;
        if options.tls {
            for file in Certificates::generate(directory.path(), USER)?.files() {
                programs.give(file)?;
            }
        }
        let mut cluster = Postgres { programs, options, directory, port: own_port()?, keeper: None };
        cluster.write_access_rules()?;
        cluster.launch()?;
        if options.tls {
            cluster.create_database(CLIENT_CERTIFICATE_DATABASE)?;
        }
        Ok(cluster)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the files that a TLS client needs; they exist when TLS is on.
    pub fn certificates(&self) -> Certificates {
        Certificates::in_directory(self.directory.path())
    }

    /// The address of a database, whether it exists or not.
    pub fn database(&self, name: &str) -> Database {
        Database {
            host: "127.0.0.1".into(),
            port: self.port,
            user: USER.into(),
            password: PASSWORD.into(),
            name: name.into(),
        }
    }

    pub fn create_database(&self, name: &str) -> Result<Database> {
        self.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(self.database(name))
    }

    /// Runs SQL in a database and returns what it prints: one row per line, columns separated by `|`.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let output = self
            .programs
            .command("psql")
            .args(["--no-psqlrc", "--tuples-only", "--no-align", "--quiet", "--set=ON_ERROR_STOP=1"])
            .args(["--host=127.0.0.1", "--username", USER, "--dbname", database])
            .args([format!("--port={}", self.port), format!("--command={sql}")])
            .env("PGPASSWORD", PASSWORD)
            .output();
        let text =
            succeeded("psql", output).with_context(|| format!("run {sql:?} in database {database:?}"))?;
        Ok(text.trim_end().to_owned())
    }

    /// Stops the server at once, as a crash would: connections break, the next start recovers.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut keeper) = self.keeper.take() else { return Ok(()) };
        if let Some(mut pipe) = keeper.stdin.take() {
            pipe.write_all(b"stop\n").context("tell PostgreSQL to stop")?;
        }
        keeper.wait().context("wait for PostgreSQL to stop")?;
        Ok(())
    }

    /// Starts a stopped server again, on the same port with the same data.
    pub fn start_again(&mut self) -> Result<()> {
        if self.keeper.is_some() {
            bail!("PostgreSQL on port {} is already running", self.port);
        }
        self.launch()
    }

    fn launch(&mut self) -> Result<()> {
        let log = fs::File::create(self.log()).context("create PostgreSQL's log")?;
        let mut command = self.programs.command("sh");
        command
            .args(["-c", KEEPER, "keeper"])
            .args([self.directory.path(), &self.programs.path("initdb"), &self.programs.path("postgres")])
            .arg(USER)
            .args(self.settings().iter().flat_map(|setting| ["-c", setting]))
            // An interrupt from the terminal is for the test; the keeper then sees the pipe close.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.keeper = Some(command.spawn().context("start PostgreSQL")?);
        let ready = self.wait_until_ready(&self.directory.path().join("data/postmaster.pid"));
        if ready.is_err() {
            self.stop()?;
        }
        ready
    }

    fn settings(&self) -> Vec<String> {
        let on = |yes: bool| if yes { "on" } else { "off" };
        let mut settings = vec![
            format!("port={}", self.port),
            format!("hba_file={}", self.access_rules().display()),
            "listen_addresses=127.0.0.1".into(),
            "unix_socket_directories=".into(),
            "max_connections=400".into(),
            "timezone=UTC".into(),
            format!("fsync={}", on(self.options.fsync)),
            format!("ssl={}", on(self.options.tls)),
        ];
        if self.options.tls {
            let files = self.certificates();
            settings.push(format!("ssl_ca_file={}", files.ca.display()));
            settings.push(format!("ssl_cert_file={}", files.server.display()));
            settings.push(format!("ssl_key_file={}", files.server_key.display()));
        }
        settings
    }

    /// The server writes `ready` into the eighth line of its pid file when it takes connections.
    fn wait_until_ready(&self, pid_file: &Path) -> Result<()> {
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            let state = fs::read_to_string(pid_file).unwrap_or_default();
            if state.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            if log.contains("database system is shut down") || Instant::now() > deadline {
                bail!("PostgreSQL did not start on port {}; its log:\n{log}", self.port);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn write_access_rules(&self) -> Result<()> {
        let mut rules = String::new();
        if self.options.tls {
            rules.push_str(&format!(
                "hostssl {CLIENT_CERTIFICATE_DATABASE} all 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n"
            ));
        }
        rules.push_str("host all all 127.0.0.1/32 scram-sha-256\n");
        fs::write(self.access_rules(), rules).context("write pg_hba.conf")?;
        self.programs.give(&self.access_rules())
    }

    fn access_rules(&self) -> PathBuf {
        self.directory.path().join("pg_hba.conf")
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            // Nothing can be done about a failure here, and the directory is removed in any case.
            let _ = keeper.wait();
        }
    }
}

/// Sets up the files if there are none yet, then runs the server until it gets the order to stop, or until
/// the process that started it is gone. Ordered to stop, it leaves the files alone; when the test is gone, it takes
/// them along. Arguments: the directory, `initdb`, `postgres`, the user, settings for the server.
const KEEPER: &str = r#"
directory=$1 initdb=$2 postgres=$3 user=$4; shift 4
[ -d "$directory/data" ] ||
    "$initdb" --no-sync --auth=scram-sha-256 --encoding=UTF8 --locale=C --username="$user" \
        --pwfile="$directory/password" "$directory/data" </dev/null ||
    echo "initdb failed: the database system is shut down"
"$postgres" -D "$directory/data" "$@" </dev/null & server=$!
read -r word
# A server that has only just started is deaf to QUIT, as a shell's background processes are, but not to TERM.
kill -TERM "$server" 2>/dev/null
kill -QUIT "$server" 2>/dev/null
wait "$server"
[ "$word" = stop ] || rm -rf "$directory"
"#;

/// PostgreSQL's programs and the user they run as.
#[derive(Debug)]
struct Programs {
    directory: PathBuf,
    /// PostgreSQL refuses to run as root; then this user and group run it.
    run_as: Option<(u32, u32)>,
}

impl Programs {
    fn find() -> Result<Programs> {
        let directory = program_directories()
            .into_iter()
            .find(|directory| ["initdb", "postgres", "psql"].iter().all(|name| directory.join(name).is_file()))
            .context(
                "PostgreSQL is not installed: initdb, postgres and psql are neither in PATH nor in \
                 /usr/lib/postgresql/*/bin. `cargo xtask test` installs it; so does `apt-get install postgresql`",
            )?;
        let root = fs::metadata("/proc/self").context("look at /proc/self")?.uid() == 0;
        let run_as = if root { Some(unprivileged_user()?) } else { None };
        Ok(Programs { directory, run_as })
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.directory.join(name);
        if path.is_file() { path } else { PathBuf::from(name) }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.path(name));
        if let Some((user, group)) = self.run_as {
            command.uid(user).gid(group);
        }
        command.current_dir("/").env("LC_ALL", "C");
        command
    }

    /// Makes a file belong to the user who runs the server.
    fn give(&self, path: &Path) -> Result<()> {
        let Some((user, group)) = self.run_as else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(user), Some(group))
            .with_context(|| format!("give {} to user {user}", path.display()))
    }
}

fn write_password(programs: &Programs, directory: &Path) -> Result<()> {
    let password = directory.join("password");
    fs::write(&password, PASSWORD).context("write the password file")?;
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).context("protect the password file")?;
    programs.give(&password)
}

fn succeeded(program: &str, output: std::io::Result<Output>) -> Result<String> {
    let output = output.with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} failed ({}): {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// PATH first, then the distribution's versions, the highest first.
fn program_directories() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    found.extend(versions.into_iter().rev().map(|(_, path)| path));
    found
}

fn unprivileged_user() -> Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    let ids = |wanted: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(wanted))?;
        let mut ids = line.split(':').skip(2);
        Some((ids.next()?.parse().ok()?, ids.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody")).context(
        "PostgreSQL refuses to run as root, and there is neither a user `postgres` nor `nobody` to run it as",
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_cluster_keeps_its_data_and_a_dropped_one_leaves_nothing() {
        let mut cluster = Postgres::start().unwrap();
        let database = cluster.create_database("kept").unwrap();
        cluster.sql("kept", "CREATE TABLE t (x int); INSERT INTO t VALUES (7)").unwrap();
        cluster.stop().unwrap();
        let refused = cluster.sql("kept", "SELECT x FROM t").unwrap_err();
        assert!(format!("{refused:#}").contains("Connection refused"), "{refused:#}");

        cluster.start_again().unwrap();
        assert_eq!(cluster.sql("kept", "SELECT x FROM t").unwrap(), "7");
        assert_eq!(cluster.database("kept"), database);

        let directory = cluster.directory.path().to_owned();
        let port = cluster.port();
        drop(cluster);
        assert!(!directory.exists());
        std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn databases_of_the_shared_cluster_differ() {
        let one = fresh_database().unwrap();
        let two = fresh_database().unwrap();
        assert_eq!(one.port, two.port);
        assert_ne!(one.name, two.name);
    }
}
