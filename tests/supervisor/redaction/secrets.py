"""Secrets of many kinds for tests, assembled here so that this file contains none."""

SECRETS: dict[str, str] = {
    "anthropic-key": "sk-" + "ant-api03-" + "Zx8" * 20,
    "openai-key": "sk-" + "proj-" + "aB3_" * 10,
    "aws-key": "AKIA" + "Q3EGPIYVXWZ4TKLM",
    "github-token": "ghp" + "_" + "k9" * 18,
    "github-pat": "github" + "_pat_" + "11ABCDEFG0" * 4,
    "gitlab-token": "glpat" + "-" + "x7Yz" * 5,
    "google-key": "AIza" + "Sy" + "0aB" * 11,
    "slack-token": "xoxb" + "-123456789012-123456789012-" + "abcdEFGH1234",
    "stripe-key": "sk_" + "live_" + "4eC3" * 6,
    "jwt": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "private-key": "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----",
    "password-in-url": "postgres://app:" + "s3cr3tPassw0rd" + "@db.internal/app",
    "bearer": "Authorization: Bearer " + "Qm9va21hcms-0123456789",
    "sendgrid-key": "SG." + "a1" * 11 + "." + "b2" * 21 + "c",
    "telegram-token": "110201543" + ":" + "AAH" * 11 + "xy",
    "npm-token": "npm" + "_" + "a1B2" * 9,
    "pypi-token": "pypi" + "-AgEIcHlwaS5vcmc" + "aB3-" * 20,
    "azure-storage-key": "AccountKey=" + "a1+/" * 21 + "ab==",
    "huggingface-token": "hf" + "_" + "abCD" * 9,
    "twilio-key": "SK" + "0a" * 16,
}
"""By name, the text that an agent might write."""

HEARTS: dict[str, str] = {
    **SECRETS,
    "password-in-url": "s3cr3t" + "Passw0rd",
    "bearer": "Qm9va21hcms" + "-0123456789",
    "private-key": "MIIEow",
}
"""The part of each that must appear nowhere."""
