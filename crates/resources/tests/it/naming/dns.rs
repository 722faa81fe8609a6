use resources::naming::dns::{
    is_dns_name, is_rfc1035_label, is_rfc1123_label, is_rfc1123_subdomain, label_value_errors,
    qualified_name_errors, rfc1035_label_errors, rfc1123_label_errors, rfc1123_subdomain_errors,
};

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn check(errors: Vec<String>, expected: &[&str]) {
    assert_eq!(errors, expected);
}

#[test]
fn rfc1123_labels_are_checked_with_the_words_of_kubernetes() {
    let sixty_four = "a".repeat(64);
    for valid in ["a", "0", "a-b", "123-abc", &sixty_four[1..]] {
        check(rfc1123_label_errors(valid), &[]);
        assert!(is_rfc1123_label(valid));
    }
    check(rfc1123_label_errors("foo.bar"), &["must not contain dots"]);
    check(rfc1123_label_errors(&sixty_four), &["must be no more than 63 characters"]);
    for invalid in ["", "-a", "a-", "A", "a_b", "a..b", "ä"] {
        check(rfc1123_label_errors(invalid), &[LABEL]);
        assert!(!is_rfc1123_label(invalid));
    }
}

#[test]
fn rfc1123_subdomains_are_labels_joined_by_dots() {
    for valid in ["a", "a.b", "0.1", "my-name.example.com"] {
        check(rfc1123_subdomain_errors(valid), &[]);
        assert!(is_rfc1123_subdomain(valid));
    }
    for invalid in ["", ".", "a.", ".a", "a..b", "a.-b", "A.b", "a_b"] {
        check(rfc1123_subdomain_errors(invalid), &[SUBDOMAIN]);
        assert!(!is_rfc1123_subdomain(invalid));
    }
    check(rfc1123_subdomain_errors(&"a".repeat(254)), &["must be no more than 253 characters"]);
}

#[test]
fn rfc1035_labels_start_with_a_letter() {
    check(rfc1035_label_errors("abc-123"), &[]);
    assert!(is_rfc1035_label("abc-123"));
    for invalid in ["", "1a", "-a", "a-", "a.b", "Abc"] {
        check(rfc1035_label_errors(invalid), &[LABEL_1035]);
        assert!(!is_rfc1035_label(invalid));
    }
    check(rfc1035_label_errors(&"a".repeat(64)), &["must be no more than 63 characters"]);
}

#[test]
fn label_keys_have_an_optional_domain_and_a_name() {
    for valid in ["app", "kuma.io/zone", "My_Name", "example.com/a.B-c"] {
        check(qualified_name_errors(valid), &[]);
    }
    check(qualified_name_errors(""), &["name part must be non-empty", &format!("name part {QUALIFIED}")]);
    check(qualified_name_errors("/a"), &["prefix part must be non-empty"]);
    check(qualified_name_errors("A/a"), &[&format!("prefix part {SUBDOMAIN}")]);
    check(qualified_name_errors(&"a".repeat(64)), &["name part must be no more than 63 characters"]);
    check(
        qualified_name_errors("a/b/c"),
        &[&format!(
            "a qualified name {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )],
    );
}

#[test]
fn label_values_may_be_empty() {
    for valid in ["", "a", "my_value", "12345", "v1.2-rc"] {
        check(label_value_errors(valid), &[]);
    }
    let rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
         must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
         for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    check(label_value_errors("-a"), &[rule]);
    check(label_value_errors("a b"), &[rule]);
    check(label_value_errors(&"a".repeat(64)), &["must be no more than 63 characters"]);
}

#[test]
fn dns_names_are_lax_about_case_and_underscores_but_are_no_addresses() {
    let label = "a".repeat(63);
    for valid in
        ["a", "Example.COM", "test-server_ns_svc_80.foo", "a.", "a_", &format!("{label}_"), "_x.y", "a-.b"]
    {
        assert!(is_dns_name(valid), "{valid}");
    }
    let long = [label.as_str(); 5].join(".");
    for invalid in
        ["", ".", "1.2.3.4", "::1", "-a", "a..b", "a b", "<no value>", "a.-b", &format!("{label}b"), &long]
    {
        assert!(!is_dns_name(invalid), "{invalid}");
    }
}
