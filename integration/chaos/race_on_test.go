//go:build prove && race

package chaos_test

const race = true
