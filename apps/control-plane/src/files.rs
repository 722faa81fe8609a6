//! Files that appear under their name only when they are complete.

use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// A file that is being written, beside the place where it will be.
#[derive(Debug)]
pub struct Draft {
    file: File,
    partial: PathBuf,
    path: PathBuf,
    mode: u32,
}

impl Draft {
    /// Starts a file that will have this mode, whatever the umask of the process is. Until it is complete it is for its
    /// owner alone.
    pub fn of(path: &Path, mode: u32) -> io::Result<Draft> {
        let partial = partial(path);
        // A file that an earlier attempt left behind may be open or readable elsewhere, so it is not used again.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::options().write(true).create_new(true).mode(0o600).open(&partial)?;
        Ok(Draft { file, partial, path: path.to_owned(), mode })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the content durable and gives the file its name.
    pub fn finish(self) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(self.mode))?;
        self.file.sync_all()?;
        fs::rename(&self.partial, &self.path)
    }
}

/// Each file has a partial one of its own: a certificate and its key differ only in their extension.
fn partial(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".partial");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_file_has_its_mode_whatever_the_umask_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kuma-cp.crt");
        // No umask that anyone uses leaves these bits.
        let draft = Draft::of(&path, 0o666).unwrap();
        assert_eq!(mode(&partial(&path)), 0o600);
        draft.file().write_all(b"certificate").unwrap();
        draft.finish().unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap()), (0o666, "certificate".to_owned()));
        assert!(!partial(&path).exists());
    }

    #[test]
    fn a_secret_is_not_written_into_a_file_that_others_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kuma-cp.key");
        fs::write(partial(&path), "").unwrap();
        fs::set_permissions(partial(&path), Permissions::from_mode(0o644)).unwrap();
        let mut opened_before = File::open(partial(&path)).unwrap();
        let draft = Draft::of(&path, 0o600).unwrap();
        draft.file().write_all(b"private key").unwrap();
        draft.finish().unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap()), (0o600, "private key".to_owned()));
        let mut seen = String::new();
        opened_before.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "");
    }

    #[test]
    fn files_that_differ_in_their_extension_do_not_share_a_partial_one() {
        assert_ne!(partial(Path::new("kuma-cp.crt")), partial(Path::new("kuma-cp.key")));
    }
}
