//! Guides that show settings.

use std::{fs, path::PathBuf};

use control_plane::config::Config;

use super::{read, settings};

#[test]
fn the_configuration_of_the_guide_to_production_is_one() {
    let guide = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/production.md");
    let guide = fs::read_to_string(guide).unwrap();
    let yaml = guide.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let loaded = read(yaml, &[]).unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let config = &loaded.config;
    assert!(
        config.api_server.authn.require_for_writes && !Config::default().api_server.authn.require_for_writes
    );
    let strangers = "mesh-system:unauthenticated".to_owned();
    let viewers = &config.access.fixed;
    for groups in
        [&viewers.view_config_dump.groups, &viewers.view_stats.groups, &viewers.view_clusters.groups]
    {
        assert!(!groups.contains(&strangers));
    }
}

#[test]
fn the_guide_to_security_names_settings_that_exist() {
    let guide = |name: &str| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(name);
        fs::read_to_string(path).unwrap()
    };
    let settings = settings();
    let known = |key: &str| settings.iter().any(|(path, ..)| path == key);
    let sections = [
        "general.",
        "store.",
        "apiServer.",
        "dpServer.",
        "monitoringAssignmentServer.",
        "multizone.",
        "access.",
        "audit.",
    ];
    let mut named = 0;
    for page in [guide("security.md"), guide("certificates.md")] {
        for code in
            page.split('`').skip(1).step_by(2).filter(|code| sections.iter().any(|s| code.starts_with(s)))
        {
            let key = code.split(':').next().unwrap();
            assert!(known(key), "{code}: there is no such setting");
            named += 1;
        }
    }
    assert!(named > 20, "{named}");
}
