//go:build race

package chaos_test

const race = true
