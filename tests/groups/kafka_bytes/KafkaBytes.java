import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/**
 * Prints what Kafka's own consumer sends in a group, as lines of a name and bytes in hexadecimal. From the project's
 * root, after scripts/kafka.sh:
 *
 *   java -cp 'var/kafka/jars/*' tests/groups/kafka_bytes/KafkaBytes.java >tests/groups/kafka_bytes/4.3.1.txt
 */
public class KafkaBytes {
    @SuppressWarnings("removal")
    static ConsumerGroupMetadata generation(int generation) {
        return new ConsumerGroupMetadata("g", generation, "m", Optional.empty());
    }

    static List<TopicPartition> partitions(String text) {
        List<TopicPartition> out = new ArrayList<>();
        for (String one : text.isEmpty() ? new String[0] : text.split(",")) {
            int colon = one.lastIndexOf(':');
            out.add(new TopicPartition(one.substring(0, colon), Integer.parseInt(one.substring(colon + 1))));
        }
        return out;
    }

    static void print(String name, ByteBuffer bytes) {
        StringBuilder out = new StringBuilder();
        for (ByteBuffer left = bytes.duplicate(); left.hasRemaining(); ) {
            out.append(String.format("%02x", left.get()));
        }
        System.out.println(name + " " + out);
    }

    /** What a consumer sends when it joins: eager consumers have revoked their partitions by then. */
    static void joins(String name, ConsumerPartitionAssignor assignor, boolean eager, String held, int generation,
            String rack, String... topics) {
        TreeSet<String> subscribed = new TreeSet<>(List.of(topics));
        if (generation >= 0) {
            assignor.onAssignment(new Assignment(partitions(held)), generation(generation));
        }
        ByteBuffer userData = assignor.subscriptionUserData(subscribed);
        if (userData != null) {
            print(name + "-user-data", userData);
        }
        print(name, ConsumerProtocol.serializeSubscription(new Subscription(new ArrayList<>(subscribed), userData,
                partitions(eager ? "" : held), generation, Optional.ofNullable(rack))));
    }

    public static void main(String[] arguments) {
        String many = "audits:1,orders:0,orders:2,payments:3,ünïcode:7";
        String[] all = {"audits", "orders", "payments", "ünïcode"};
        joins("sticky-first", new StickyAssignor(), true, "", -1, null, "t");
        joins("sticky-held", new StickyAssignor(), true, "t:0,t:1", 5, null, "t");
        joins("sticky-nothing", new StickyAssignor(), true, "", 6, "rack-b", "t");
        joins("sticky-many", new StickyAssignor(), true, many, 2147483647, "rack-a", all);
        joins("cooperative-first", new CooperativeStickyAssignor(), false, "", -1, null, "t");
        joins("cooperative-held", new CooperativeStickyAssignor(), false, "t:0,t:1", 5, null, "t");
        joins("cooperative-nothing", new CooperativeStickyAssignor(), false, "", 6, "rack-b", "t");
        joins("cooperative-many", new CooperativeStickyAssignor(), false, many, 2147483647, "rack-a", all);
        print("assignment-held", ConsumerProtocol.serializeAssignment(new Assignment(partitions("t:0,t:1"))));
        print("assignment-nothing", ConsumerProtocol.serializeAssignment(new Assignment(List.of())));
        print("assignment-many", ConsumerProtocol.serializeAssignment(new Assignment(partitions(many))));
    }
}
