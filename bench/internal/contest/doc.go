// Package contest has the contestants, the messages they deliver, and the
// publisher that counts and checks what arrives.
package contest
