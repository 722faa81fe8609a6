//! The commit of a checkout, read from git's files: a build needs no program for it, and none of them has to exist.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// As many digits as git itself shows in a repository of this size, and some more.
const DIGITS: usize = 12;

/// The commit that is checked out.
#[derive(Debug)]
pub struct Head {
    /// The commit, shortened.
    pub commit: String,
    /// Files that change when another commit is checked out or made.
    pub changes_with: Vec<PathBuf>,
}

impl Head {
    /// Reads what is checked out in a folder; `None` outside of a checkout, or if its files are not understood.
    pub fn of(checkout: &Path) -> Option<Head> {
        let git = git_folder(checkout)?;
        // A worktree has a head of its own, and shares branches with the repository it belongs to.
        let shared = fs::read_to_string(git.join("commondir"))
            .map_or_else(|_| git.clone(), |path| git.join(path.trim()));
        let head = git.join("HEAD");
        let text = fs::read_to_string(&head).ok()?;
        let (commit, branch) = match text.trim().strip_prefix("ref: ") {
            Some(branch) => (branch_commit(&git, &shared, branch)?, Some(branch)),
            None => (text.trim().to_owned(), None),
        };
        let is_hash = commit.len() >= 40 && commit.bytes().all(|digit| digit.is_ascii_hexdigit());
        let log = git.join("logs/HEAD");
        let files = [log, head, shared.join(branch.unwrap_or("HEAD")), shared.join("packed-refs")];
        let changes_with = files.into_iter().filter(|file| file.is_file()).collect();
        is_hash.then(|| Head { commit: commit[..DIGITS].to_owned(), changes_with })
    }
}

/// `.git`, or where the file of that name points in a worktree.
fn git_folder(checkout: &Path) -> Option<PathBuf> {
    let git = checkout.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let pointer = fs::read_to_string(&git).ok()?;
    Some(checkout.join(pointer.trim().strip_prefix("gitdir: ")?))
}

/// The commit of a branch, from its file or from the list of branches that git makes now and then.
fn branch_commit(git: &Path, shared: &Path, branch: &str) -> Option<String> {
    let own = [git, shared].into_iter().find_map(|folder| fs::read_to_string(folder.join(branch)).ok());
    if let Some(commit) = own {
        return Some(commit.trim().to_owned());
    }
    let packed = fs::read_to_string(shared.join("packed-refs")).ok()?;
    let found = packed.lines().find_map(|line| line.strip_suffix(branch)?.strip_suffix(' '));
    found.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// A checkout with these files in its `.git`.
    fn checkout(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    fn commit(files: &[(&str, &str)]) -> Option<String> {
        Head::of(checkout(files).path()).map(|head| head.commit)
    }

    #[test]
    fn the_commit_of_a_branch_of_a_tag_and_of_a_worktree_is_found() {
        let branch = format!("{COMMIT}\n");
        let packed = format!(
            "# pack-refs with: peeled\n{} refs/heads/other\n{COMMIT} refs/heads/main\n",
            "f".repeat(40)
        );
        let expect = Some("0123456789ab".to_owned());
        assert_eq!(commit(&[(".git/HEAD", &branch)]), expect);
        let head = (".git/HEAD", "ref: refs/heads/main\n");
        assert_eq!(commit(&[head, (".git/refs/heads/main", &branch)]), expect);
        assert_eq!(commit(&[head, (".git/packed-refs", &packed)]), expect);
        let worktree = [
            (".git", "gitdir: repository/worktrees/one\n"),
            ("repository/worktrees/one/HEAD", "ref: refs/heads/main\n"),
            ("repository/worktrees/one/commondir", "../..\n"),
            ("repository/refs/heads/main", &branch),
        ];
        assert_eq!(commit(&worktree), expect);
    }

    #[test]
    fn what_is_no_checkout_has_no_commit() {
        assert_eq!(commit(&[("README.md", "")]), None);
        assert_eq!(commit(&[(".git", "somewhere")]), None);
        assert_eq!(commit(&[(".git/HEAD", "ref: refs/heads/main\n")]), None);
        assert_eq!(commit(&[(".git/HEAD", "not a commit, but a long text instead of one")]), None);
    }

    #[test]
    fn a_new_commit_is_noticed() {
        let branch = format!("{COMMIT}\n");
        let files = [
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/refs/heads/main", &*branch),
            (".git/logs/HEAD", "x"),
        ];
        let folder = checkout(&files);
        let head = Head::of(folder.path()).unwrap();
        let named: Vec<PathBuf> =
            ["logs/HEAD", "HEAD", "refs/heads/main"].map(|name| folder.path().join(".git").join(name)).into();
        assert_eq!(head.changes_with, named);
    }
}
