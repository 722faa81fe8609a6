//! Limit of the files, connections included, that this process may open.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit to what the system allows, because the usual 1024 are used up by as many clients; says
/// what it is then. Programs that this one starts inherit it.
pub fn allow_all() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_the_system_allows() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(256), hard).unwrap();
        assert_eq!(allow_all().unwrap(), hard);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    }
}
