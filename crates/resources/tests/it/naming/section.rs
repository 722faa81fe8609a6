use proptest::prelude::*;
use resources::naming::SectionName;

#[test]
fn ports_and_port_names_are_sections() {
    let longest = "a".repeat(63);
    for valid in
        ["1", "80", "5050", "65535", "a", "http", "http2", "backend-kumahq.com", "a.-b", "a1", &longest]
    {
        assert_eq!(valid.parse::<SectionName>().expect(valid).as_str(), valid);
    }
}

#[test]
fn every_broken_rule_is_named() {
    let check = |section: &str, reason: &str| {
        let error = section.parse::<SectionName>().expect_err(section).to_string();
        assert_eq!(error, format!("invalid section name {section:?}: {reason}"));
    };
    check("", "must not be empty");
    check("0", "a port number must be in the range 1 to 65535");
    check("65536", "a port number must be in the range 1 to 65535");
    check("99999", "a port number must be in the range 1 to 65535");
    check("123456", "a port number must be in the range 1 to 65535");
    check("080", "a port number must not have leading zeros");
    check("00", "a port number must not have leading zeros");
    check("8080x", "a port name must start with a lower case letter");
    check("-a", "a port name must start with a lower case letter");
    check(".a", "a port name must start with a lower case letter");
    check("a-", "a port name must end with a lower case letter or a digit");
    check("a.", "a port name must end with a lower case letter or a digit");
    check("a--b", "a port name must not contain consecutive hyphens");
    check("a..b", "a port name must not contain consecutive dots");
    check("A", "a port name may contain only lower case letters, digits, '-' and '.'");
    check("a_b", "a port name may contain only lower case letters, digits, '-' and '.'");
    check("ä", "a port name may contain only lower case letters, digits, '-' and '.'");
    check(&"a".repeat(64), "a port name must be no more than 63 characters");
}

#[test]
fn a_port_without_name_is_its_number() {
    let of = |name, port| SectionName::of_port(name, port).map(|section| section.to_string());
    assert_eq!(of(Some("http"), 80), Ok("http".to_owned()));
    assert_eq!(of(None, 80), Ok("80".to_owned()));
    assert_eq!(of(Some(""), 80), Ok("80".to_owned()));
    assert!(of(None, 0).is_err());
    assert!(of(None, 65536).is_err());
    assert_eq!("8080".parse::<SectionName>().map(|section| section.port()), Ok(Some(8080)));
    assert_eq!("http".parse::<SectionName>().map(|section| section.port()), Ok(None));
}

/// Names by construction: parts of letters and digits joined by single hyphens or dots.
pub fn any_section() -> impl Strategy<Value = SectionName> {
    let port = (1..=65535_u32).prop_map(|port| port.to_string());
    let name = "[a-z][a-z0-9]{0,5}([.-][a-z0-9]{1,6}){0,8}";
    prop_oneof![port, name].prop_map(|section| section.parse().expect("a section"))
}

proptest! {
    #[test]
    fn every_port_is_a_section(section in any_section()) {
        prop_assert!(section.as_str().len() <= 63);
    }
}
