//go:build prove

// Package chaos breaks everything around relay processes at once, and the
// processes too, and then asks the database and the stream what came of it. Its
// tests run on Linux.
//
// With POSTRIDER_PROVE=1 the faults go on for ten minutes (go test -timeout 30m
// -v shows the counts). POSTRIDER_TEST_SEED repeats a plan of faults, and
// POSTRIDER_TEST_LOGS names a directory for the logs of the relays.
package chaos
