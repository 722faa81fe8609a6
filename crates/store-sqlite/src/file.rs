//! Opening the file: one process at a time, readable by its user only, of a schema we know, sound.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use store::{Error, Snapshot};

use crate::{Options, rows};

/// "kuma" in ASCII: tells our files from those of other programs.
const APPLICATION_ID: i32 = 0x6b75_6d61;

/// Bytes that a write of usual size needs on the disk.
const ROOM: usize = 64 << 10;

/// Statements that bring a file of schema `n` to schema `n + 1`. Only ever append.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE meta (
        name  TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO meta (name, value) VALUES ('revision', 0);

    CREATE TABLE resources (
        kind       TEXT NOT NULL,
        mesh       TEXT NOT NULL,
        name       TEXT NOT NULL,
        version    INTEGER NOT NULL,
        created    TEXT NOT NULL,
        modified   TEXT NOT NULL,
        labels     TEXT NOT NULL,
        owner_kind TEXT,
        owner_mesh TEXT,
        owner_name TEXT,
        spec       TEXT NOT NULL,
        status     TEXT,
        PRIMARY KEY (kind, mesh, name)
    ) STRICT, WITHOUT ROWID;
"];

/// Holds the file against other processes, for as long as it lives or until the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child that was forked and has not begun its program yet has the file open, too.
        let _ = self.file.unlock();
    }
}

impl Lock {
    pub(crate) fn take(path: &Path) -> Result<Lock, Error> {
        let lock = beside(path, ".lock");
        let file = private_file(&lock).map_err(|why| cannot_open(&lock, &why))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { file }),
            Err(TryLockError::WouldBlock) => Err(Error::Unavailable(format!(
                "{} is in use by another process (it holds {}): stop that process, or give this one a file \
                 of its own; several control planes share a PostgreSQL store instead",
                path.display(),
                lock.display(),
            ))),
            Err(TryLockError::Error(why)) => Err(Error::Unavailable(format!(
                "cannot lock {}: {why}; the file must be on a disk that supports locks",
                lock.display()
            ))),
        }
    }
}

/// The one name of a file, whatever links lead to it, so that two processes meet at the same lock.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, Error> {
    if path.symlink_metadata().is_ok() {
        return path.canonicalize().map_err(|why| cannot_open(path, &why));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or_else(|| {
        cannot_open(path, &io::Error::new(io::ErrorKind::InvalidInput, "this is not a file's name"))
    })?;
    Ok(directory.canonicalize().map_err(|why| cannot_open(path, &why))?.join(name))
}

/// Opens the file and reads everything in it.
pub(crate) fn open(path: &Path, options: &Options) -> Result<(Connection, Snapshot), Error> {
    refuse_orphaned_log(path)?;
    private_file(path).map_err(|why| cannot_open(path, &why))?;
    let explain = |why: rusqlite::Error| explain(path, &why);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(explain)?;
    // Exclusive: no shared memory beside the file, and tools that would write behind our back stay out.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(explain)?;
    // Nothing is changed before the file is known to be ours and sound.
    check(&connection, path)?;
    configure(&connection, options).map_err(explain)?;
    migrate(&mut connection, path)?;
    let snapshot = rows::load(&connection, path)?;
    // The log has the permissions the file had when it was opened, maybe by somebody's careless copy.
    for file in [path, &beside(path, "-wal")] {
        restrict(file).map_err(|why| cannot_open(file, &why))?;
    }
    // The names of a file and its log must survive a loss of power as their contents do.
    if let Some(directory) = path.parent() {
        File::open(directory).and_then(|d| d.sync_all()).map_err(|why| cannot_open(directory, &why))?;
    }
    Ok((connection, snapshot))
}

/// Refuses a log with changes beside an empty file. SQLite would take it for the remains of another database and delete
/// it; a file that was ever written to is not empty.
fn refuse_orphaned_log(path: &Path) -> Result<(), Error> {
    let size = |file: &Path| match fs::metadata(file) {
        Ok(metadata) => Ok(metadata.len()),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(why) => Err(cannot_open(file, &why)),
    };
    let log = beside(path, "-wal");
    let logged = size(&log)?;
    if size(path)? > 0 || logged == 0 {
        return Ok(());
    }
    Err(Error::Damaged(format!(
        "{file} is empty or was missing, and {log} beside it holds {logged} bytes of changes to a database that is not \
         there. Put the file back that they belong to, and start again. If it is lost, move {file} and {log} away, then \
         restore a backup with `kuma-cp store import`, or start without one: the store will be empty",
        file = path.display(),
        log = log.display(),
    )))
}

fn configure(connection: &Connection, options: &Options) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // One large batch should not leave a large log behind for good.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    if let Some(pages) = options.max_pages {
        connection.pragma_update(None, "max_page_count", pages)?;
    }
    Ok(())
}

fn check(connection: &Connection, path: &Path) -> Result<(), Error> {
    let explain = |why: rusqlite::Error| explain(path, &why);
    let findings: Vec<String> = connection
        .prepare("PRAGMA quick_check(3)")
        .and_then(|mut check| check.query_map([], |row| row.get(0))?.collect())
        .map_err(explain)?;
    if findings != ["ok"] {
        return Err(damaged(path, &findings.join("; ")));
    }
    let id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(explain)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(explain)?;
    if id != APPLICATION_ID && tables > 0 {
        return Err(damaged(path, "it is a SQLite database of another program"));
    }
    Ok(())
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let explain = |why: rusqlite::Error| explain(path, &why);
    let schema: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(explain)?;
    let known = MIGRATIONS.len() as i64;
    if schema > known {
        return Err(Error::Unavailable(format!(
            "{} has schema {schema}, written by a later version of this program; this one knows schemas up to \
             {known}: start the later version",
            path.display()
        )));
    }
    if schema == known {
        return Ok(());
    }
    let done = usize::try_from(schema).map_err(|_| damaged(path, &format!("its schema is {schema}")))?;
    let transaction = connection.transaction().map_err(explain)?;
    for migration in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(migration).map_err(explain)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(explain)?;
    transaction.pragma_update(None, "user_version", known).map_err(explain)?;
    transaction.commit().map_err(explain)
}

/// Takes some room on the disk and gives it back: the log may have room for a small write when the disk has
/// none for a usual one.
pub(crate) fn has_room(path: &Path) -> Result<(), Error> {
    let probe = beside(path, "-probe");
    let taken = private_file(&probe).and_then(|mut file| {
        file.write_all(&[0; ROOM])?;
        file.sync_data()
    });
    // What is left of a failed attempt would take the last room for good.
    let _ = fs::remove_file(&probe);
    taken.map_err(|why| {
        Error::Unavailable(format!(
            "cannot write {ROOM} bytes beside {}: {why}; free some space on this disk, and see that it is \
             writable",
            path.display()
        ))
    })
}

/// Opens a file, or creates one that only its user may read.
fn private_file(path: &Path) -> io::Result<File> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    open.open(path)
}

/// Makes an existing file readable by its owner only: it holds secrets.
fn restrict(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if path.exists() {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn cannot_open(path: &Path, why: &io::Error) -> Error {
    Error::Unavailable(format!(
        "cannot open {}: {why}; the directory must exist and be writable by this user",
        path.display()
    ))
}

/// Describes stored data that cannot be read, and says what to do.
pub(crate) fn damaged(path: &Path, found: &str) -> Error {
    Error::Damaged(format!(
        "{file}: {found}. Move {file} and {file}-wal away, then restore a backup with `kuma-cp store import`, \
         or start without one: the store will be empty",
        file = path.display()
    ))
}

/// Tells a damaged file from one that cannot be used right now.
pub(crate) fn explain(path: &Path, why: &rusqlite::Error) -> Error {
    match why.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => damaged(path, &why.to_string()),
        Some(ErrorCode::DiskFull) => Error::Unavailable(format!(
            "{}: {why}: the disk is full or the file has reached its size limit; free some space",
            path.display()
        )),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Unavailable(format!(
            "{}: {why}: another program, maybe the sqlite3 shell, has the file open; close it there",
            path.display()
        )),
        _ => Error::Unavailable(format!("{}: {why}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_store_although_a_forked_child_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kuma.db");
        let lock = Lock::take(&path).unwrap();
        let of_child = lock.file.try_clone().unwrap();
        assert!(Lock::take(&path).is_err());
        drop(lock);
        assert!(Lock::take(&path).is_ok());
        drop(of_child);
    }
}
