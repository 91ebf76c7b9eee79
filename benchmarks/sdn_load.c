/* All hosts of a network in one process: sends numbered, stamped messages at a rate, receives every copy, tells what came.

   Compiled and run by sdn_traffic.py, which makes the sockets in the hosts' namespaces and hands them over. Each message
   goes to every target (a socket, an address, a publisher's number); with a prefix, sockets are streams and each message
   is a frame that begins with it. SIGTERM ends the sending early. Says one line of JSON; a log has every message. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#define MOST 256
#define BATCH 64
#define FRAME_BYTES 2048
#define STREAM_BYTES (1 << 18)
#define MAGIC 0x314c4242u
#define MOST_LATENCIES (8u << 20)

struct body { uint32_t magic; uint16_t publisher, spare; uint64_t number, sent_ns; } __attribute__((packed));
struct target { int fd; struct sockaddr_in to; int publisher; };
struct arrival { uint32_t receiver, number; uint64_t received_ns; };
struct receiver { int fd; uint64_t came, twice, out_of_order, newest; uint8_t *seen; uint8_t *rest; size_t rest_bytes; };

static struct target targets[MOST * 4];
static struct receiver receivers[MOST];
static int n_targets, n_receivers, n_publishers = 1;
static double rate, seconds;
static uint64_t most, quiet_ns;
static int payload_bytes, nap_us, prefix_bytes;
static uint8_t prefix[64];
static uint64_t *sent_at;
static struct arrival *arrivals;
static size_t n_arrivals, most_arrivals;
static uint32_t *latencies;
static size_t n_latencies;
static volatile sig_atomic_t stopped;
static uint64_t n_sent, send_errors, stray;
static volatile uint64_t began_ns = UINT64_MAX;  /* until then everything is somebody else's */
static volatile uint64_t ended_ns, newest_arrival_ns;
static int keeps_log;
static uint64_t real_ahead_ns;  /* of the monotonic clock; the kernel stamps datagrams with the real one */

static uint64_t now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static void sleep_until(uint64_t ns) {
    struct timespec t = { ns / 1000000000ull, ns % 1000000000ull };
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}
static void on_term(int number) { (void)number; stopped = 1; }

static void write_all(int fd, const uint8_t *data, size_t size) {
    while (size) {
        ssize_t done = send(fd, data, size, MSG_NOSIGNAL);
        if (done < 0) { if (errno == EINTR) continue; send_errors++; return; }
        data += done; size -= done;
    }
}

/* As many messages as are due, but no more than a batch: each to every target. */
static void send_some(uint64_t first, int count) {
    static uint8_t frames[BATCH][FRAME_BYTES];
    static struct mmsghdr calls[BATCH];
    static struct iovec pieces[BATCH];
    size_t size = prefix_bytes + payload_bytes;
    int filled = 0, fd = -1;
    for (int at = 0; at < count; at++) {
        for (int one = 0; one < n_targets; one++) {
            struct target *target = &targets[one];
            if (filled == BATCH || (filled && fd != target->fd)) {
                for (int done = 0; done < filled;) {
                    int now = prefix_bytes ? -1 : sendmmsg(fd, calls + done, filled - done, 0);
                    if (prefix_bytes) { write_all(fd, frames[done], size); done++; continue; }
                    if (now < 0) { if (errno == EINTR) continue; send_errors++; now = 1; }
                    done += now;
                }
                filled = 0;
            }
            fd = target->fd;
            uint64_t stamp = now_ns();
            if (one == 0 && keeps_log) sent_at[first + at] = stamp;
            memcpy(frames[filled], prefix, prefix_bytes);
            struct body body = { MAGIC, target->publisher, 0, first + at, stamp };
            memcpy(frames[filled] + prefix_bytes, &body, sizeof body);
            pieces[filled] = (struct iovec){ frames[filled], size };
            calls[filled].msg_hdr = (struct msghdr){ .msg_name = &target->to, .msg_namelen = sizeof target->to,
                                                     .msg_iov = &pieces[filled], .msg_iovlen = 1 };
            filled++;
        }
    }
    for (int done = 0; done < filled;) {
        if (prefix_bytes) { write_all(fd, frames[done], size); done++; continue; }
        int now = sendmmsg(fd, calls + done, filled - done, 0);
        if (now < 0) { if (errno == EINTR) continue; send_errors++; now = 1; }
        done += now;
    }
}

static void *sending(void *nothing) {
    (void)nothing;
    prctl(PR_SET_TIMERSLACK, 1000);
    uint64_t tick_ns = rate > 2500 ? 250000 : 0, end = (uint64_t)(rate * seconds);
    if (end > most) end = most;
    began_ns = now_ns();
    while (n_sent < end && !stopped) {
        uint64_t now = now_ns(), due = (uint64_t)((now - began_ns) * rate / 1e9) + 1;
        if (due > end) due = end;
        while (n_sent < due && !stopped) {
            int count = due - n_sent > 16 ? 16 : (int)(due - n_sent);
            send_some(n_sent, count);
            n_sent += count;
        }
        uint64_t next = began_ns + (uint64_t)(n_sent * 1e9 / rate);
        if (next < now + tick_ns) next = now + tick_ns;
        if (n_sent < end) sleep_until(next);
    }
    ended_ns = now_ns();
    return NULL;
}

static void take(struct receiver *receiver, const uint8_t *data, size_t size, uint64_t now) {
    struct body body;
    if (size < sizeof body) { stray++; return; }
    memcpy(&body, data, sizeof body);
    if (body.magic != MAGIC || body.number >= most || body.publisher >= n_publishers || body.sent_ns < began_ns) { stray++; return; }
    uint64_t place = body.publisher * most + body.number;
    if (receiver->seen[place >> 3] & (1 << (place & 7))) { receiver->twice++; return; }
    receiver->seen[place >> 3] |= 1 << (place & 7);
    receiver->came++;
    if (body.number + 1 < receiver->newest) receiver->out_of_order++;
    else receiver->newest = body.number + 1;
    newest_arrival_ns = now;
    if (n_latencies < MOST_LATENCIES) {
        uint64_t latency = now > body.sent_ns ? now - body.sent_ns : 0;
        latencies[n_latencies++] = latency > UINT32_MAX ? UINT32_MAX : (uint32_t)latency;
    }
    if (keeps_log && body.publisher == 0 && n_arrivals < most_arrivals)
        arrivals[n_arrivals++] = (struct arrival){ (uint32_t)(receiver - receivers), (uint32_t)body.number, now };
}

static void drain_stream(struct receiver *receiver) {
    size_t size = prefix_bytes + payload_bytes;
    for (;;) {
        ssize_t got = recv(receiver->fd, receiver->rest + receiver->rest_bytes, STREAM_BYTES - receiver->rest_bytes, MSG_DONTWAIT);
        if (got <= 0) return;
        uint64_t now = now_ns();
        receiver->rest_bytes += got;
        size_t at = 0;
        for (; receiver->rest_bytes - at >= size; at += size) {
            if (memcmp(receiver->rest + at, prefix, prefix_bytes)) stray++;
            take(receiver, receiver->rest + at + prefix_bytes, payload_bytes, now);
        }
        memmove(receiver->rest, receiver->rest + at, receiver->rest_bytes - at);
        receiver->rest_bytes -= at;
    }
}

/* When the kernel had it, whatever else this process was doing then. */
static uint64_t arrived_ns(struct msghdr *head, uint64_t now) {
    for (struct cmsghdr *note = CMSG_FIRSTHDR(head); note; note = CMSG_NXTHDR(head, note))
        if (note->cmsg_level == SOL_SOCKET && note->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(note), sizeof t);
            return t.tv_sec * 1000000000ull + t.tv_nsec - real_ahead_ns;
        }
    return now;
}

static void drain(struct receiver *receiver) {
    static uint8_t room[BATCH][FRAME_BYTES];
    static uint8_t notes[BATCH][64];
    static struct mmsghdr calls[BATCH];
    static struct iovec pieces[BATCH];
    if (prefix_bytes) { drain_stream(receiver); return; }
    for (;;) {
        for (int at = 0; at < BATCH; at++) {
            pieces[at] = (struct iovec){ room[at], FRAME_BYTES };
            calls[at].msg_hdr = (struct msghdr){ .msg_iov = &pieces[at], .msg_iovlen = 1,
                                                 .msg_control = notes[at], .msg_controllen = sizeof notes[at] };
        }
        int got = recvmmsg(receiver->fd, calls, BATCH, MSG_DONTWAIT, NULL);
        if (got <= 0) return;
        uint64_t now = now_ns();
        for (int at = 0; at < got; at++) take(receiver, room[at], calls[at].msg_len, arrived_ns(&calls[at].msg_hdr, now));
        if (got < BATCH) return;
    }
}

static int is_over(void) {
    if (!ended_ns) return 0;
    uint64_t came = 0;
    for (int at = 0; at < n_receivers; at++) came += receivers[at].came;
    if (came == n_sent * n_publishers * n_receivers) return 1;
    uint64_t last = newest_arrival_ns > ended_ns ? newest_arrival_ns : ended_ns;
    return now_ns() > last + quiet_ns;
}

static void receiving(void) {
    prctl(PR_SET_TIMERSLACK, 1000);
    int poll = epoll_create1(0);
    for (int at = 0; at < n_receivers; at++) {
        struct epoll_event event = { .events = EPOLLIN, .data.u32 = at };
        epoll_ctl(poll, EPOLL_CTL_ADD, receivers[at].fd, &event);
    }
    while (!is_over()) {
        if (nap_us) {
            sleep_until(now_ns() + nap_us * 1000ull);
            for (int at = 0; at < n_receivers; at++) drain(&receivers[at]);
            continue;
        }
        struct epoll_event events[MOST];
        int ready = epoll_wait(poll, events, MOST, 20);
        for (int at = 0; at < ready; at++) drain(&receivers[events[at].data.u32]);
    }
}

static int by_size(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return a < b ? -1 : a > b;
}

int main(int count, char **words) {
    if (count != 10) { fprintf(stderr, "rate seconds payload nap_us quiet_ms prefix log targets receivers\n"); return 2; }
    rate = atof(words[1]); seconds = atof(words[2]); payload_bytes = atoi(words[3]); nap_us = atoi(words[4]);
    quiet_ns = strtoull(words[5], NULL, 10) * 1000000ull;
    for (const char *hex = words[6]; hex[0] && hex[1] && prefix_bytes < 64 && words[6][0] != '-'; hex += 2) {
        unsigned byte; sscanf(hex, "%2x", &byte); prefix[prefix_bytes++] = byte;
    }
    keeps_log = strcmp(words[7], "-") != 0;
    most = (uint64_t)(rate * seconds) + 1;
    for (char *word = strtok(words[8], ","); word && n_targets < MOST * 4; word = strtok(NULL, ",")) {
        struct target *target = &targets[n_targets++];
        char address[32]; int port;
        if (sscanf(word, "%d:%31[^:]:%d:%d", &target->fd, address, &port, &target->publisher) != 4) return 2;
        target->to.sin_family = AF_INET; target->to.sin_port = htons(port);
        inet_pton(AF_INET, address, &target->to.sin_addr);
        if (target->publisher >= n_publishers) n_publishers = target->publisher + 1;
    }
    for (char *word = strtok(words[9], ","); word && n_receivers < MOST; word = strtok(NULL, ",")) {
        struct receiver *receiver = &receivers[n_receivers++];
        receiver->fd = atoi(word);
        if (!prefix_bytes) setsockopt(receiver->fd, SOL_SOCKET, SO_TIMESTAMPNS, &(int){ 1 }, sizeof(int));
        receiver->seen = calloc((most * n_publishers >> 3) + 1, 1);
        if (prefix_bytes) receiver->rest = malloc(STREAM_BYTES);
        if (!prefix_bytes) drain(receiver);  /* what an earlier load left behind is nobody's */
        receiver->came = receiver->twice = 0;
    }
    stray = 0;
    if (payload_bytes < (int)sizeof(struct body) || payload_bytes + prefix_bytes > FRAME_BYTES || !n_targets) return 2;
    latencies = malloc(MOST_LATENCIES * sizeof *latencies);
    if (keeps_log) {
        most_arrivals = most * n_receivers;
        arrivals = malloc(most_arrivals * sizeof *arrivals); sent_at = calloc(most, sizeof *sent_at);
    }
    struct timespec real;
    uint64_t before = now_ns();
    clock_gettime(CLOCK_REALTIME, &real);
    real_ahead_ns = real.tv_sec * 1000000000ull + real.tv_nsec - before;
    signal(SIGTERM, on_term);
    pthread_t sender;
    pthread_create(&sender, NULL, sending, NULL);
    receiving();
    pthread_join(sender, NULL);
    uint64_t came = 0, twice = 0, out_of_order = 0, fewest = UINT64_MAX;
    for (int at = 0; at < n_receivers; at++) {
        came += receivers[at].came; twice += receivers[at].twice; out_of_order += receivers[at].out_of_order;
        if (receivers[at].came < fewest) fewest = receivers[at].came;
    }
    qsort(latencies, n_latencies, sizeof *latencies, by_size);
    #define AT(share) (n_latencies ? latencies[(size_t)((n_latencies - 1) * (share))] : 0)
    printf("{\"sent\": %lu, \"publishers\": %d, \"took_ns\": %lu, \"expected\": %lu, \"received\": %lu, \"fewest\": %lu, "
           "\"twice\": %lu, \"out_of_order\": %lu, \"stray\": %lu, \"send_errors\": %lu, \"p50_ns\": %u, \"p90_ns\": %u, "
           "\"p99_ns\": %u, \"max_ns\": %u, \"last_after_ns\": %ld}\n",
           n_sent, n_publishers, ended_ns - began_ns, n_sent * n_publishers * n_receivers, came, fewest, twice, out_of_order, stray,
           send_errors, AT(0.5), AT(0.9), AT(0.99), AT(1.0), newest_arrival_ns ? (long)(newest_arrival_ns - ended_ns) : 0);
    if (keeps_log) {
        FILE *log = fopen(words[7], "wb");
        if (!log) return 3;
        fwrite(&n_sent, sizeof n_sent, 1, log);
        fwrite(sent_at, sizeof *sent_at, n_sent, log);
        fwrite(arrivals, sizeof *arrivals, n_arrivals, log);
        fclose(log);
    }
    return 0;
}
